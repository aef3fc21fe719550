"""What runs of every protocol leave behind: kept while the code is rearranged without changing what it does."""
