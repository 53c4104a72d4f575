/* What Tidegate asks of LuaJIT beyond Lua's C interface. src/script/luajit.rs declares the same for Rust. */

#ifndef _INTERFACE_H
#define _INTERFACE_H

#include <stddef.h>
#include <stdint.h>
#include "lua.h"

/* What some function of a chunk does: bits of tide_notes. */
#define TIDE_SETS_GLOBALS	1	/* Assigns a global variable. */
#define TIDE_KEEPS_LISTS	2	/* May change or keep the tables KEYS and ARGV. */

/* What runs: results of tide_caller. */
#define TIDE_LUA	0	/* A function written in Lua. */
#define TIDE_C		1	/* A C function. */
#define TIDE_ASSEMBLER	2	/* A fast function. */

/* Where an argument lies in a buffer. */
typedef struct tide_Span {
  uint32_t start;
  uint32_t len;
} tide_Span;

/* The arguments of a C function, copied one behind the other. */
typedef struct tide_Gathered {
  char *bytes;		/* Of which len are written, and there is room for some in all. */
  size_t len;
  size_t room;
  tide_Span *spans;	/* One for each argument. */
  size_t nspans;
  size_t spanroom;
  const char *name;	/* The text of the first argument, which LuaJIT keeps, if it is a string. */
  int isstatement;	/* The results of the call are lost, whatever they are. */
} tide_Gathered;

LUA_API int tide_notes(lua_State *L);
LUA_API void tide_set_constfuncs(lua_State *L);
LUA_API void tide_set_inneronly(lua_State *L, int inneronly);
LUA_API int tide_caller(lua_State *L);
LUA_API int tide_gather(lua_State *L, tide_Gathered *g);
LUA_API int tide_next(lua_State *L, uint32_t *at);

#endif
