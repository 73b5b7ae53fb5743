/*
 * Lua at work: runs a script, which finds its number in the global `work`.
 *
 *     script SCRIPT WORK
 */
#include <stdio.h>
#include <stdlib.h>

#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: script SCRIPT WORK\n");
        return 2;
    }
    lua_State *state = luaL_newstate();
    if (state == NULL) return 1;
    luaL_openlibs(state);
    lua_pushinteger(state, atoll(argv[2]));
    lua_setglobal(state, "work");
    if (luaL_dofile(state, argv[1]) != LUA_OK) {
        fprintf(stderr, "error: %s\n", lua_tostring(state, -1));
        return 1;
    }
    lua_close(state);
    return 0;
}
