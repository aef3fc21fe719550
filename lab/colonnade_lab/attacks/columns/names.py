"""Names of the attackers, as options and files have them."""

SEARCH, START, PRODUCTS, COMPONENTS, ROWS = "starts", "known-start", "products", "components", "known-rows"
