/* Makes a killed server lose its files' unsynced data, as a loss of power does: a library for LD_PRELOAD.
 *
 * Bytes written to files below POWER_LOSS_DIR stay in this process until the file is synced, and are lost when the process is
 * killed. Some sectors, chosen at random, are written at once, since a disk may write any sector before it is asked to. The
 * length of a file changes at once. Files there are created, renamed and removed at once. Each such change is noted in
 * POWER_LOSS_JOURNAL/journal until the directory is synced; the test that restarts the server undoes some of the last changes.
 * Until the sync a file that was removed or replaced is kept in POWER_LOSS_JOURNAL.
 *
 * The library replaces only the functions that the server uses for its files: pwrite64, pread64, write, fsync, fdatasync,
 * open64, rename, unlink, mkdir. Other ways to write are refused. POWER_LOSS_SEED chooses the sectors.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR 512
/* One of this many sectors is written before it is synced. */
#define EARLY 4
/* The longest duration of a sync, in microseconds: most losses of power fall into a sync. */
#define SYNC_US 4000

struct unsynced {
    struct unsynced *next;
    off_t at;
    size_t len;
    char bytes[];
};

struct file {
    struct file *next;
    dev_t device;
    ino_t inode;
    struct unsynced *first, **end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static uint64_t dice;
static unsigned removed;
static char dir[4096], journal_dir[4096], journal[4200];

/* Ends the server when the library itself fails, as on a full disk, which it does not simulate. */
static void give_up(int line) {
    fprintf(stderr, "power_loss.c:%d: %s\n", line, strerror(errno));
    abort();
}

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_open)(const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);

__attribute__((constructor)) static void begin(void) {
    const char *below = getenv("POWER_LOSS_DIR"), *notes = getenv("POWER_LOSS_JOURNAL"), *seed = getenv("POWER_LOSS_SEED");
    if (!below || !notes || !seed) give_up(__LINE__);
    dice = strtoull(seed, NULL, 10) * 2 + 1;
    /* Copies: the server writes the title of its process over the environment. */
    snprintf(dir, sizeof dir, "%s", below);
    snprintf(journal_dir, sizeof journal_dir, "%s", notes);
    snprintf(journal, sizeof journal, "%s/journal", journal_dir);
    removed = (unsigned)getpid();
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
}

static int is_ours(const char *path) { return strncmp(path, dir, strlen(dir)) == 0; }

static uint64_t roll(uint64_t n) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice % n;
}

/* The open file, if it is below POWER_LOSS_DIR; `st` describes it. */
static struct file *file_of(int fd, struct stat *st) {
    if (fstat(fd, st)) return NULL;
    for (struct file *file = files; file; file = file->next)
        if (file->device == st->st_dev && file->inode == st->st_ino) return file;
    return NULL;
}

/* Names a file in POWER_LOSS_JOURNAL for one that is about to lose its name. */
static void name_to_keep(char *kept, size_t len) {
    snprintf(kept, len, "%s/removed-%u", journal_dir, removed);
    removed += 1u << 22;
}

static void note(const char *what, const char *path, const char *other, const char *kept) {
    char line[12500];
    int len = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", what, path, other, kept);
    int fd = real_open(journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || real_write(fd, line, (size_t)len) != len) give_up(__LINE__);
    close(fd);
}

/* Whether a noted change is of a name in the directory. */
static int is_in(const char *line, const char *path, size_t len) {
    const char *name = strchr(line, '\t') + 1, *end = strchr(name, '\t');
    while (*end != '/') end--;
    return (size_t)(end - name) == len && !strncmp(name, path, len);
}

/* Removes the file that a change which became durable had kept. */
static void drop_kept(char *line) {
    int is_unlink = !strncmp(line, "unlink\t", 7);
    if (!is_unlink && strncmp(line, "replace\t", 8)) return;
    char *kept = line;
    for (int field = is_unlink ? 2 : 3; field > 0; field--) kept = strchr(kept, '\t') + 1;
    kept[strcspn(kept, "\t\n")] = 0;
    if (real_unlink(kept)) give_up(__LINE__);
}

/* Forgets the noted changes of names in a directory. */
static void forget(int fd) {
    char link[64], path[4096], line[12500], rest[4300];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) give_up(__LINE__);
    path[len] = 0;
    FILE *from = fopen(journal, "r");
    if (!from) return;
    snprintf(rest, sizeof rest, "%s.new", journal);
    FILE *to = fopen(rest, "w");
    if (!to) give_up(__LINE__);
    while (fgets(line, sizeof line, from))
        if (!is_in(line, path, (size_t)len)) fputs(line, to);
    if (fclose(to) || real_rename(rest, journal)) give_up(__LINE__);
    /* Only now: until then a loss of power undoes these changes. */
    rewind(from);
    while (fgets(line, sizeof line, from))
        if (is_in(line, path, (size_t)len)) drop_kept(line);
    fclose(from);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (!is_ours(path) || (flags & O_ACCMODE) == O_RDONLY) return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = (flags & O_CREAT) && access(path, F_OK);
    int fd = real_open(path, flags, mode);
    struct stat st;
    if (fd >= 0 && !file_of(fd, &st)) {
        struct file *file = calloc(1, sizeof *file);
        *file = (struct file){.next = files, .device = st.st_dev, .inode = st.st_ino, .end = NULL};
        file->end = &file->first;
        files = file;
    }
    if (fd >= 0 && is_new) note("create", path, "", "");
    pthread_mutex_unlock(&lock);
    return fd;
}

static int persist(int fd, const char *bytes, size_t len, off_t at) {
    while (len) {
        ssize_t done = real_pwrite(fd, bytes, len, at);
        if (done < 0 && errno != EINTR) return -1;
        if (done > 0) bytes += done, at += done, len -= (size_t)done;
    }
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t at) {
    struct stat st;
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, &st);
    ssize_t done = (ssize_t)len;
    if (!file) {
        done = real_pwrite(fd, bytes, len, at);
    } else if (at + (off_t)len > st.st_size && ftruncate(fd, at + (off_t)len)) {
        done = -1;
    } else {
        struct unsynced *write = malloc(sizeof *write + len);
        if (!write) give_up(__LINE__);
        *write = (struct unsynced){.next = NULL, .at = at, .len = len};
        memcpy(write->bytes, bytes, len);
        *file->end = write;
        file->end = &write->next;
        for (off_t begin = at, end; begin < at + (off_t)len; begin = end) {
            end = (begin / SECTOR + 1) * SECTOR;
            if (end > at + (off_t)len) end = at + (off_t)len;
            if (roll(EARLY) == 0 && persist(fd, write->bytes + (begin - at), (size_t)(end - begin), begin)) give_up(__LINE__);
        }
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pread64(int fd, void *into, size_t len, off_t at) {
    struct stat st;
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, &st);
    ssize_t done = real_pread(fd, into, len, at);
    for (struct unsynced *write = file && done > 0 ? file->first : NULL; write; write = write->next) {
        off_t begin = write->at > at ? write->at : at, end = write->at + (off_t)write->len;
        if (end > at + done) end = at + done;
        if (begin < end) memcpy((char *)into + (begin - at), write->bytes + (begin - write->at), (size_t)(end - begin));
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) {
    struct stat st;
    int failed = 0;
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, &st);
    useconds_t takes = (useconds_t)roll(SYNC_US);
    pthread_mutex_unlock(&lock);
    usleep(takes);
    pthread_mutex_lock(&lock);
    if (file) {
        /* A file may be synced by a descriptor that only reads. */
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int out = real_open(link, O_WRONLY | O_CLOEXEC);
        if (out < 0) give_up(__LINE__);
        for (struct unsynced *write; !failed && (write = file->first);) {
            failed = persist(out, write->bytes, write->len, write->at);
            file->first = write->next;
            free(write);
        }
        file->end = &file->first;
        close(out);
    } else if (S_ISDIR(st.st_mode)) {
        forget(fd);
    } else {
        failed = real_fsync(fd);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

int fdatasync(int fd) { return fsync(fd); }

ssize_t write(int fd, const void *bytes, size_t len) {
    struct stat st;
    pthread_mutex_lock(&lock);
    int is_here = file_of(fd, &st) != NULL;
    pthread_mutex_unlock(&lock);
    if (!is_here) return real_write(fd, bytes, len);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t written = pwrite64(fd, bytes, len, at);
    if (written > 0) lseek(fd, at + written, SEEK_SET);
    return written;
}

int rename(const char *from, const char *to) {
    if (!is_ours(from)) return real_rename(from, to);
    pthread_mutex_lock(&lock);
    char kept[4200];
    int replaces = access(to, F_OK) == 0;
    if (replaces) {
        name_to_keep(kept, sizeof kept);
        if (link(to, kept)) give_up(__LINE__);
    }
    int failed = real_rename(from, to);
    if (!failed && replaces) note("replace", from, to, kept);
    if (!failed && !replaces) note("rename", from, to, "");
    pthread_mutex_unlock(&lock);
    return failed;
}

int unlink(const char *path) {
    if (!is_ours(path)) return real_unlink(path);
    char kept[4200];
    pthread_mutex_lock(&lock);
    name_to_keep(kept, sizeof kept);
    int failed = real_rename(path, kept);
    if (!failed) note("unlink", path, kept, "");
    pthread_mutex_unlock(&lock);
    return failed;
}

int mkdir(const char *path, mode_t mode) {
    if (!is_ours(path)) return real_mkdir(path, mode);
    pthread_mutex_lock(&lock);
    int failed = real_mkdir(path, mode);
    if (!failed) note("mkdir", path, "", "");
    pthread_mutex_unlock(&lock);
    return failed;
}
