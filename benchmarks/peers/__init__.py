"""What others would use instead, brought up to be measured beside ours."""
