-- Redis's clock, the only one that decides, in µs and in whole ms.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
