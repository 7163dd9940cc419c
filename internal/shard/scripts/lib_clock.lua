-- Redis's clock, the only one that decides: microseconds and whole milliseconds.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
