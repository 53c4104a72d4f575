/* A wall clock that can be set, for LD_PRELOAD. The file that WALL_CLOCK names holds two numbers of 64 bits: by how many
 * nanoseconds the clock is ahead, which may change at any time, and how many readings were changed so far, which this library
 * counts. Clocks that can't be set stay as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct setting {
    _Atomic int64_t ahead_ns;
    _Atomic int64_t readings;
};

static int (*real)(clockid_t, struct timespec *);
static struct setting *setting;

__attribute__((constructor)) static void begin(void) {
    real = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("WALL_CLOCK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, sizeof(struct setting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) setting = map;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) begin(); /* another library's constructor asks for the time */
    int failed = real(clock, now);
    if (failed || !setting || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ahead_ns = atomic_load(&setting->ahead_ns);
    if (ahead_ns == 0) return 0;
    int64_t at_ns = now->tv_sec * 1000000000LL + now->tv_nsec + ahead_ns;
    now->tv_sec = at_ns / 1000000000LL;
    now->tv_nsec = at_ns % 1000000000LL;
    atomic_fetch_add(&setting->readings, 1);
    return 0;
}
