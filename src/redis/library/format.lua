-- The words of this library:
--
--   attempt   one request to acquire; the one that made a grant is its public ID
--   terms     what an attempt asks for        place     a waiter: its process, attempt and terms
--   hand-over, called                         a place has its turn, and has to confirm that
--   lapse     the end of a hand-over that was not confirmed
--   handed    what a hand-over came to: FREE, HANDED, MORE dead waiters to drop, WIDER keys needed,
--             or GRANTED straight, without a confirmation
--   look      a waiting process asks how things are, and serves whoever is next
--   doubt, question                           whether those who wait are alive: see question.lua
--   mark      the value of a resource's key while it has shared grants, whose holders are readers
--   target    what a release ends             aim       the argument that names it: see release.lua

-- The texts that leasehold stores.
--
--   place  = process ':' attempt ':' terms       a member of a queue
--   record = token ':' rest                      the record of a grant
--   rest   = id ':' last ':' terms
--   terms  = mode ':' version ':' ttl_ms ':' given published ':' bytes of lock ID ':'
--            bytes of request ID ':' lock ID, request ID, holder
--
-- `id` is the attempt that made the grant, and its public ID. `last` is the attempt that claimed it
-- last by a repeated request, or `id` as long as nobody has. All versions keep what stands before the
-- version, so a hand-over can copy a place of a newer version without reading its rest. An attempt
-- has 32 digits. So the rest of a new grant, which callers send, has its terms and the letter of
-- their mode here:
local TERMS_AT = 67

local format = {}
-- The terms of a plain grant, and the colon before them: see format.is_plain.
local PLAIN_TERMS = '^:x:' .. VERSION .. ':%d+:0%d:(%d+):%d+:()'

-- Reads terms. Those of a newer version have only their `mode`.
function format.terms(terms)
  local mode, version, ttl_ms, given, locks, requests, at =
    string.match(terms, '^(%a):(%d+):(%d+):(%d)%d:(%d+):(%d+):()')
  if version ~= VERSION then
    -- See "A new version of the stored texts" in CONTRIBUTING.md.
    mode, version = string.match(terms, '^(%a):(%d+):')
    if not version or tonumber(version) <= tonumber(VERSION) then return nil end
    return { mode = mode, is_newer = true }
  end
  return {
    mode = mode,
    ttl_ms = ttl_ms,
    is_given = given == '1',
    lock_id = string.sub(terms, at, at + locks - 1),
    request = string.sub(terms, at + locks, at + locks + requests - 1),
    holder = string.sub(terms, at + locks + requests),
  }
end

-- Reads the record of a grant.
function format.grant(record)
  local token, id, last, terms = string.match(record or '', '^(%d+):(%x+):(%x+):(.*)$')
  local grant = token and format.terms(terms)
  if not grant then return nil end
  grant.token, grant.id, grant.last, grant.terms = token, id, last, terms
  return grant
end

-- Reads a place. It has a `process`, and no token, as long as its attempt was not granted.
function format.place(place)
  local process, attempt, terms = string.match(place, '^(%x+):(%x+):(.*)$')
  local waiter = process and format.terms(terms)
  if not waiter then return nil end
  waiter.process, waiter.id, waiter.last, waiter.terms = process, attempt, attempt, terms
  return waiter
end

-- Reads what a caller asks for: see the arguments of `try`.
function format.asked(args)
  local terms = string.sub(args[3], TERMS_AT)
  local asked = format.terms(terms)
  asked.lock_id, asked.ttl_ms, asked.rest = args[1], args[2], args[3]
  asked.attempt, asked.terms = string.sub(asked.rest, 1, 32), terms
  return asked
end

function format.rest(id, last, terms)
  return id .. ':' .. last .. ':' .. terms
end

-- Whether the record is that of the exclusive grant with this public ID and this lock ID, which
-- leasehold chose. Whatever it says otherwise is not read: that would make a cycle a fifth dearer.
function format.is_plain(record, id, lock_id)
  if string.sub(record, 18, 49) ~= id then return false end
  local locks, at = string.match(record, PLAIN_TERMS, 83)
  return locks and string.sub(record, at, at + locks - 1) == lock_id
end

-- Fails before anything is written if a newer version of leasehold made the grant.
function format.must_read(grant)
  if grant.is_newer then error('NEWER a newer version of leasehold made the grant') end
end
