"""Small parts that every folder uses and that know none of them."""
