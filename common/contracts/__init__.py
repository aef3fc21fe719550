"""What a protocol agrees on before anyone runs it, and the parts of contracts that several protocols share."""
