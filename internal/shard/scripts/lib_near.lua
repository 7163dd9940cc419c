-- due_near says that a record's due time is this ms, or the next one, which a version has
-- that replaced another in this ms. It reads records of every format.
local function due_near(record)
  local due = #record >= 7 and struct.unpack('>I6', record, 2)
  return due == now or due == now + 1
end
