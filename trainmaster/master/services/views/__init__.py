"""What pages and tables read: values made from rows in a few queries; nothing here changes a row."""
