"""How fast queuedriver is beside bare system calls, bare Python, its peers, and shell tools."""
