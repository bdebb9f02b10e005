"""HTTP against nginx: the same client on the same link.

- `http.py`: the benchmark: sites, servers, rounds, figures. Start here
- `client.{h,c}`: the client, on corelane's TCP; `answer.h`: reading its answers; `tls.{h,c}`: its TLS
"""
