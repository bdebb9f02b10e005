"""What Linux says of network interfaces, and what is set there.

    netdev.{h,c}   link state and drop counters by rtnetlink, from any thread
    ethtool.py     the few offloads that matter here, by ioctl
    netns.py       network namespaces and veth pairs for tests and benchmarks, removed on leaving the block

No thread, no state. Start reading at netns.py.
"""
