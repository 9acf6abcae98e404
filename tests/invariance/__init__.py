"""Whether an answer of published weights has the same bits alone and among others."""
