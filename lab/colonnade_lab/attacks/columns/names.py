SEARCH, START, PRODUCTS, COMPONENTS, ROWS = "starts", "known-start", "products", "components", "known-rows"
