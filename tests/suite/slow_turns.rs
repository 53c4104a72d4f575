//! Things a script may repeat without end, each turn slow: for the tests of script limits, and for the benchmark that
//! measures how soon they end a script (`cargo bench --bench script_limits`).

/// `s` is a string of 2 MB, `t` a table of 20,000 strings, times the scale; the keys are those of [`fill`].
pub(crate) const TURNS: &[&str] = &[
    // Commands.
    "redis.call('BITCOUNT', 'text')",
    "redis.call('BITPOS', 'text', 1)",
    "redis.call('BITOP', 'NOT', 'copy', 'text')",
    "redis.call('KEYS', 'no*such')",
    "redis.call('SORT', 'list')",
    "redis.call('LCS', 'other', 'other')",
    "redis.call('XRANGE', 'stream', '-', '+')",
    "redis.call('SUNIONSTORE', 'copy', 'set', 'set')",
    "redis.call('ZUNIONSTORE', 'copy', 2, 'zset', 'zset')",
    "redis.call('LRANGE', 'list', 0, -1)",
    "redis.call('HGETALL', 'hash')",
    "redis.call('SMEMBERS', 'set')",
    "redis.call('ZRANGE', 'zset', 0, -1)",
    "redis.call('GET', 'text')",
    "redis.call('SET', 'copy', s)",
    "redis.call('DUMP', 'zset')",
    "redis.call('LPOS', 'list', 'none')",
    "redis.pcall('SORT', 'set', 'BY', 'nosort', 'nonsense')",
    // Strings.
    "local x = s:upper()",
    "local x = s:lower()",
    "local x = s:reverse()",
    "local x = s:sub(2)",
    "local x = ('ab'):rep(1e6)",
    "local x = s .. 'x'",
    "s:find('no such', 1, true)",
    "s:find('[' .. ('y'):rep(1e6) .. ']')",
    "s:find('%f[' .. ('y'):rep(1e6) .. ']')",
    "s:match('.-b')",
    "for w in s:gmatch('x') do end",
    "s:gsub('x', 'y')",
    "s:gsub('x', string.upper)",
    "s:gsub('', function() redis.call('BITCOUNT', 'text') end)",
    "(('text '):rep(1e5)):gsub('%a+', function(key) return redis.call('STRLEN', key) end)",
    "(('x'):rep(1e5)):gsub('', ('%0'):rep(1e5))",
    "string.format('%s%s', s, s)",
    "string.format(('%%'):rep(1e6))",
    "tonumber(('1'):rep(1e6))",
    // Tables.
    "table.concat(t, ',')",
    "table.sort(t)",
    "table.sort(t, function(a, b) return a < b end)",
    "pcall(table.sort, t, redis.pcall)",
    "pcall(table.sort, t, function() redis.call('BITCOUNT', 'text') end)",
    "table.insert(t, 1, 'x') t[#t] = nil",
    "for i = 1, 1e4 do local a, b = next(t, nil) end",
    "unpack(t, 1, 7000)",
    "table.foreach(t, tostring)",
    "setmetatable({}, {__index = function() return redis.call('BITCOUNT', 'text') end}).x = 1",
    "collectgarbage()",
    // The other libraries.
    "cjson.decode(cjson.encode(t))",
    "cjson.encode(s)",
    "cjson.decode('\"' .. ('\\\\n'):rep(1e5) .. '\"')",
    "cjson.decode((' '):rep(1e6) .. '1')",
    "cmsgpack.unpack(cmsgpack.pack(t))",
    "struct.unpack(('<'):rep(1e6) .. 'b', 'x')",
    "struct.pack(('x'):rep(1e5))",
    "redis.sha1hex(s)",
    "redis.log(redis.LOG_DEBUG, s)",
    "redis.error_reply(s)",
    "redis.status_reply(s)",
    "loadstring('return {' .. ('1,'):rep(1e5) .. '}')",
    "load(function() return ('x = 1 '):rep(100) end)",
    // Ways to survive an error.
    "pcall(redis.call, 'BITCOUNT', 'text')",
    "xpcall(function() redis.call('BITCOUNT', 'text') error('x') end, function() redis.call('BITCOUNT', 'text') end)",
    "coroutine.wrap(function() redis.call('BITCOUNT', 'text') end)()",
];

/// Scripts that make the keys. At scale 1 they hold 4 MB of text and 20,000 elements each.
pub(crate) fn fill(scale: usize) -> [String; 5] {
    let n = 20_000 * scale;
    [
        format!(
            "redis.call('SETRANGE', 'text', {}, 'x') redis.call('SETRANGE', 'other', 4000, 'x')",
            4_000_000 * scale
        ),
        format!("for i = 1, {n} do redis.call('SET', 'key:' .. i, i) end"),
        format!("for i = 1, {n} do redis.call('RPUSH', 'list', i * 7919 % 20011) redis.call('SADD', 'set', i) end"),
        format!("for i = 1, {n} do redis.call('ZADD', 'zset', i, i) redis.call('HSET', 'hash', i, i) end"),
        format!("for i = 1, {n} do redis.call('XADD', 'stream', '*', 'f', i) end"),
    ]
}

/// A script that repeats this turn for ever, whatever errors it catches.
pub(crate) fn endless(turn: &str, scale: usize) -> String {
    format!(
        "local s, t = ('x'):rep({}), {{}} for i = 1, {} do t[i] = 'text' end
         local function turn() {turn} end
         while true do pcall(turn) end",
        2_000_000 * scale,
        20_000 * scale
    )
}
