"""What parties were told and received, for comparison between them."""
