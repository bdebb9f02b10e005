"""`corelane bench embed`: what a server's users notice of its operation.

embed.py     a server is replaced by its next version, again and again, under load
"""
