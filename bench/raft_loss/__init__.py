"""`corelane bench raft_loss`: Raft's transport over a link that loses, beside go-back-N, in virtual time.

raft_loss.py          the benchmark: start here
run.{h,c}             a stream with a full window, and requests at drawn times, over a link
link.{h,c}            one direction of the link: rate, delay, and losses that follow from a seed
side.h                an end of the link: channel_side.c is Raft's channel, go_back_n.c what it is compared with
"""
