"""A party's record of what it sent and received: statements, their comparison with other parties', captures."""
