"""What streams stand on, each measured: order, time, loopback, adopted kthreads, memory of bytes, doorbells, timers."""
