"""corelane.bench.load.reference: a server of known latency, which a load tool can be tried against.

Owns one thread that keeps each request as long as the request says, and a histogram of how long that really was. With
no time to keep them it is the loopback reflector that measures the client's own share. reference.h states the rules.
"""
