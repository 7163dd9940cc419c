-- other_term comes before the first write in a script that the intake sends. term is the
-- caller's; "" for callers that have none. It returns nil to go on, or the caller's whole
-- reply if this shard has seen another term.
local function other_term(fence, term)
  if term == '' then return nil end
  whole('term', term, 1, 2 ^ 53)
  local seen = redis.call('HGET', fence, 'intake')
  if seen == term then return nil end
  if seen and tonumber(seen) > tonumber(term) then return {'superseded', seen} end
  return {'unraised', seen or ''}
end
