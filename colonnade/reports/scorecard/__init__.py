"""How a two-class model separates people: the server's page of scores, and a party's page of its bins."""
