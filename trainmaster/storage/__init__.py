"""Object stores that keep checkpoints: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.

The master signs requests and a job sends the bytes: no key ever enters a job, and an image needs no library. Listing,
copying, deleting, and putting the parts of a large object together is the master's.
"""
