/* A slow disk, for LD_PRELOAD: each fdatasync takes SLOW_DISK_US microseconds longer, and none ends while the file that
 * SLOW_DISK_HANGS names exists.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    const char *us = getenv("SLOW_DISK_US"), *hangs = getenv("SLOW_DISK_HANGS");
    if (us) usleep((useconds_t)atoi(us));
    while (hangs && access(hangs, F_OK) == 0) usleep(500);
    return real(fd);
}
