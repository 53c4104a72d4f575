/* What Tidegate asks of LuaJIT beyond Lua's C interface. The end of lj_api.c includes it. */

#include "interface.h"
#include "lauxlib.h"
#include "lj_bc.h"

/* What the functions of the chunk do that was compiled last, as bits. */
LUA_API int tide_notes(lua_State *L)
{
  return (int)G(L)->notes;
}

/* Pops a table of tables: by the names of globals, and of their fields, the functions that these fields always are. From here on,
** compiled functions that name a field so load its function as a constant. */
LUA_API void tide_set_constfuncs(lua_State *L)
{
  setgcref(G(L)->gcroot[GCROOT_CONSTFUNCS], gcV(L->top-1));
  L->top--;
}

/* Whether that is done in the functions inside a chunk only. */
LUA_API void tide_set_inneronly(lua_State *L, int inneronly)
{
  G(L)->inneronly = (uint8_t)inneronly;
}

/* The kind of the function that runs on the state to which L belongs, for an allocator. */
LUA_API int tide_caller(lua_State *L)
{
  lua_State *running = gco2th(gcref(G(L)->cur_L));
  GCfunc *fn = curr_func(running);
  if (isluafunc(fn)) return TIDE_LUA;
  return iscfunc(fn) || bc_op(*mref(fn->c.pc, BCIns)) == BC_FUNCC ? TIDE_C : TIDE_ASSEMBLER;
}

/* Copy a short text without a call. */
static LJ_AINLINE void copy_text(char *to, const char *from, size_t len)
{
  if (len > 16) {
    memcpy(to, from, len);
  } else if (len >= 8) {  /* Two words that may overlap. */
    uint64_t a, b;
    memcpy(&a, from, 8); memcpy(&b, from+len-8, 8);
    memcpy(to, &a, 8); memcpy(to+len-8, &b, 8);
  } else if (len >= 4) {
    uint32_t a, b;
    memcpy(&a, from, 4); memcpy(&b, from+len-4, 4);
    memcpy(to, &a, 4); memcpy(to+len-4, &b, 4);
  } else {
    while (len--) *to++ = *from++;
  }
}

/* Write a number in digits. Returns where they end. */
static LJ_AINLINE char *put_digits(char *to, uint32_t k)
{
  char digits[10], *p = digits + sizeof(digits);
  do { *--p = (char)('0' + k % 10); } while (k /= 10);
  while (p < digits + sizeof(digits)) *to++ = *p++;
  return to;
}

/* Copies the arguments of the C function that runs, from the first one on that has no span, up to one that is neither a string nor a
** small natural number, or for which there is no room. Returns how many are left. */
LUA_API int tide_gather(lua_State *L, tide_Gathered *g)
{
  cTValue *o = L->base + g->nspans, *top = L->top, *frame = L->base-1;
  char *to = g->bytes + g->len;
  tide_Span *span = g->spans + g->nspans, *lastspan = g->spans + g->spanroom;
  for (; o < top && span < lastspan; o++, span++) {
    size_t room = g->bytes + g->room - to, len;
    if (tvisstr(o)) {
      len = strV(o)->len;
      if (len > room) break;
      copy_text(to, strVdata(o), len);
    } else if (tvisnumber(o)) {
      lua_Number n = numberVnum(o);
      int32_t k;
      if (!(n >= 0 && n <= INT32_MAX) || room < 10) break;
      k = (int32_t)n;
      if ((lua_Number)k != n) break;
      len = put_digits(to, (uint32_t)k) - to;
    } else {
      break;
    }
    span->start = (uint32_t)(to - g->bytes);
    span->len = (uint32_t)len;
    to += len;
  }
  g->len = to - g->bytes;
  g->nspans = span - g->spans;
  g->name = L->base < top && tvisstr(L->base) ? strVdata(L->base) : NULL;
  g->isstatement = 0;
  if (frame_islua(frame)) {
    BCIns call = frame_pc(frame)[-1];
    g->isstatement = (bc_op(call) == BC_CALL || bc_op(call) == BC_CALLM) && bc_b(call) == 1;
  }
  return (int)(top - o);
}

/* Pushes the pair at a position of the table on top, or else the first one behind it, in the order of lua_next: key and value. Moves the
** position behind that pair. Answers the type of the key; LUA_TNIL at the end, with nothing pushed. The first position is 0, and the
** table must not change between calls. */
LUA_API int tide_next(lua_State *L, uint32_t *at)
{
  GCtab *t = tabV(L->top-1);
  MSize i = *at, asize = t->asize;
  Node *n, *end = noderef(t->node) + t->nnode;
  lj_state_checkstack(L, 2);
  for (; i < asize; i++) {
    cTValue *value = arrayslot(t, i);
    if (!tvisnil(value)) {
      setintV(L->top, (int32_t)i);
      copyTV(L, L->top+1, value);
      L->top += 2;
      *at = i+1;
      return LUA_TNUMBER;
    }
  }
  for (n = noderef(t->node) + (i-asize); n < end; n++) {
    if (!tvisnil(&n->val)) {
      copyTV(L, L->top, &n->key);
      copyTV(L, L->top+1, &n->val);
      L->top += 2;
      *at = asize + (MSize)(n - noderef(t->node)) + 1;
      return tvisstr(&n->key) ? LUA_TSTRING : lua_type(L, -2);
    }
  }
  return LUA_TNIL;
}

/* The crate mlua names it, though nothing here calls it. */
LUALIB_API int luaopen_ffi(lua_State *L)
{
  return luaL_error(L, "this LuaJIT has no FFI");
}
