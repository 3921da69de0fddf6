/* Sits between a program and the C library, and makes the disk below one directory an enemy.
 *
 * Every change of a file or of a directory is noted before it is made, with what it takes to undo it. Syncs are noted
 * when they have succeeded. After the program was killed, whoever reads the notes can put the directory into any state
 * in which a power cut might have left it: what was not synced may be there, be gone, or be torn by the sector.
 *
 * On request writes are cut short, interrupted or fail, and syncs fail, or say that they succeeded and did nothing.
 *
 *   UNRELIABLE_ROOT   the directory
 *   UNRELIABLE_NOTES  a directory beside it, on the same file system: notes, and links to removed files
 *   UNRELIABLE_PLAN   words such as "seed=7 short=50 eintr=50 lie=20 eio=3000 enospc=0 syncfail=400":
 *                     one call in so many; 0 or nothing for never
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* A note: this head, then the two paths, then the old bytes. All in the machine's own byte order. */
struct note {
    char kind;        /* W write, T length, S sync, C create, R rename, U unlink, M mkdir, X rmdir, D sync of a directory */
    char pad[7];
    uint64_t seq;     /* S and D: changes up to this one are on disk */
    uint64_t inode;
    uint64_t offset;  /* T: the new length */
    uint64_t len;     /* W: how much is written */
    uint64_t old_len; /* the file's length before */
    uint64_t backup;  /* R and U: the number of the link to what was there */
    uint32_t path_len, other_len;
    uint64_t bytes_len;
};

static char root[PATH_MAX], notes_dir[PATH_MAX];
static size_t root_len;
static int notes = -1;
static uint64_t sequence, backups, dice;
static unsigned long one_short, one_eintr, one_lie, one_eio, one_enospc, one_syncfail;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name, type, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

static unsigned long planned(const char *plan, const char *word) {
    const char *at = strstr(plan, word);
    return at ? strtoul(at + strlen(word), NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *dir = getenv("UNRELIABLE_ROOT"), *to = getenv("UNRELIABLE_NOTES"), *plan = getenv("UNRELIABLE_PLAN");
    if (!dir || !to) return;
    if (!realpath(dir, root)) return;
    root_len = strlen(root);
    snprintf(notes_dir, sizeof notes_dir, "%s", to);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/notes", notes_dir);
    notes = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (!plan) plan = "";
    dice = planned(plan, "seed=") * 2654435769u + 88172645463325252u;
    one_short = planned(plan, "short=");
    one_eintr = planned(plan, "eintr=");
    one_lie = planned(plan, "lie=");
    one_eio = planned(plan, "eio=");
    one_enospc = planned(plan, "enospc=");
    one_syncfail = planned(plan, "syncfail=");
}

/* The lock is held. */
static int one_in(unsigned long n) {
    if (!n) return 0;
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice % n == 0;
}

static int below_root(const char *path) {
    return root_len && strncmp(path, root, root_len) == 0 && (path[root_len] == '/' || path[root_len] == 0);
}

/* The path of a descriptor below the root; 0 if it is elsewhere. */
static int path_of(int fd, char *path) {
    if (notes < 0) return 0;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, PATH_MAX - 1);
    if (len <= 0) return 0;
    path[len] = 0;
    return below_root(path);
}

/* An absolute path for a name relative to a directory; 0 if it is not below the root. */
static int resolve(int dir, const char *name, char *path) {
    if (notes < 0) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char at[PATH_MAX];
        if (dir == AT_FDCWD) {
            if (!getcwd(at, sizeof at)) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            ssize_t len = readlink(link, at, sizeof at - 1);
            if (len <= 0) return 0;
            at[len] = 0;
        }
        if (snprintf(path, PATH_MAX, "%s/%s", at, name) >= PATH_MAX) return 0;
    }
    return below_root(path);
}

static void put(const void *bytes, size_t len) {
    const char *at = bytes;
    while (len > 0) {
        ssize_t done = syscall(SYS_write, notes, at, len);
        if (done <= 0) {
            if (errno == EINTR) continue;
            static const char text[] = "unreliable: cannot write notes\n";
            syscall(SYS_write, 2, text, sizeof text - 1);
            _exit(99);
        }
        at += done;
        len -= (size_t)done;
    }
}

/* The lock is held. */
static void note(struct note *n, const char *path, const char *other, const void *bytes) {
    n->path_len = path ? strlen(path) : 0;
    n->other_len = other ? strlen(other) : 0;
    put(n, sizeof *n);
    if (path) put(path, n->path_len);
    if (other) put(other, n->other_len);
    if (bytes) put(bytes, n->bytes_len);
}

/* Notes what [offset, offset + len) holds now. The lock is held. */
static void note_range(char kind, const char *path, uint64_t inode, uint64_t offset, uint64_t len, uint64_t old_len,
                       uint64_t from, uint64_t to) {
    struct note n = {.kind = kind, .seq = ++sequence, .inode = inode, .offset = offset, .len = len, .old_len = old_len};
    char *old = NULL;
    if (from < to) {
        old = malloc(to - from);
        int own = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
        if (old && own >= 0) {
            while (n.bytes_len < to - from) {
                ssize_t got = syscall(SYS_pread64, own, old + n.bytes_len, to - from - n.bytes_len, from + n.bytes_len);
                if (got <= 0) break;
                n.bytes_len += (uint64_t)got;
            }
        }
        if (own >= 0) syscall(SYS_close, own);
    }
    note(&n, path, NULL, old);
    free(old);
}

static void note_write(int fd, const char *path, uint64_t offset, size_t len) {
    struct stat st;
    if (fstat(fd, &st) != 0) return;
    uint64_t size = (uint64_t)st.st_size, end = offset + len;
    note_range('W', path, st.st_ino, offset, len, size, offset < size ? offset : size, end < size ? end : size);
}

static void note_length(const char *path, uint64_t inode, uint64_t to, uint64_t size) {
    note_range('T', path, inode, to, 0, size, to < size ? to : size, size);
}

/* What goes wrong with a write of *len bytes: 0, or -1 with errno. The lock is held. */
static int write_trouble(size_t *len) {
    if (one_in(one_eintr)) {
        errno = EINTR;
        return -1;
    }
    if (one_in(one_eio)) {
        errno = EIO;
        return -1;
    }
    if (one_in(one_enospc)) {
        errno = ENOSPC;
        return -1;
    }
    if (*len > 1 && one_in(one_short)) *len = 1 + dice % (*len - 1);
    return 0;
}

static uint64_t place_of(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat st;
        return fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    }
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    REAL(write, ssize_t, int, const void *, size_t);
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real(fd, bytes, len);
    pthread_mutex_lock(&lock);
    ssize_t done = write_trouble(&len);
    if (done == 0) {
        note_write(fd, path, place_of(fd), len);
        done = real(fd, bytes, len);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev, ssize_t, int, const struct iovec *, int);
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real(fd, parts, count);
    /* The first part alone is a write cut short, which a caller must expect. */
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) return write(fd, parts[i].iov_base, parts[i].iov_len);
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off64_t);
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real(fd, bytes, len, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = write_trouble(&len);
    if (done == 0) {
        note_write(fd, path, (uint64_t)offset, len);
        done = real(fd, bytes, len, offset);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return pwrite64(fd, bytes, len, offset); }

static int truncated(int fd, off64_t len, int (*real)(int, off64_t)) {
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(fd, path) || fstat(fd, &st) != 0) return real(fd, len);
    pthread_mutex_lock(&lock);
    note_length(path, st.st_ino, (uint64_t)len, (uint64_t)st.st_size);
    int done = real(fd, len);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off64_t len) {
    REAL(ftruncate64, int, int, off64_t);
    return truncated(fd, len, real);
}

int ftruncate(int fd, off_t len) {
    REAL(ftruncate64, int, int, off64_t);
    return truncated(fd, len, real);
}

/* std::fs::copy falls back to reads and writes, which are seen here. */
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t len, unsigned flags) {
    REAL(copy_file_range, ssize_t, int, off64_t *, int, off64_t *, size_t, unsigned);
    char path[PATH_MAX];
    if (!path_of(out, path)) return real(in, from, out, to, len, flags);
    errno = ENOSYS;
    return -1;
}

ssize_t sendfile64(int out, int in, off64_t *from, size_t len) {
    REAL(sendfile64, ssize_t, int, int, off64_t *, size_t);
    char path[PATH_MAX];
    if (!path_of(out, path)) return real(out, in, from, len);
    errno = ENOSYS;
    return -1;
}

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    struct stat st;
    if (!path_of(fd, path) || fstat(fd, &st) != 0) return real(fd);
    pthread_mutex_lock(&lock);
    struct note n = {.kind = S_ISDIR(st.st_mode) ? 'D' : 'S', .seq = sequence, .inode = st.st_ino};
    int lies = one_in(one_lie), fails = one_in(one_syncfail);
    pthread_mutex_unlock(&lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    if (lies) return 0;
    int done = real(fd);
    if (done == 0) {
        pthread_mutex_lock(&lock);
        note(&n, path, NULL, NULL);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

int fsync(int fd) {
    REAL(fsync, int, int);
    return synced(fd, real);
}

int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    return synced(fd, real);
}

static int opened(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(dir, name, path))
        return syscall(SYS_openat, dir, name, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat st;
    int there = stat(path, &st) == 0;
    if (there && (flags & O_TRUNC) && st.st_size > 0) note_length(path, st.st_ino, 0, (uint64_t)st.st_size);
    int fd = syscall(SYS_openat, dir, name, flags, mode);
    if (fd >= 0 && !there && fstat(fd, &st) == 0) {
        struct note n = {.kind = 'C', .seq = ++sequence, .inode = st.st_ino};
        note(&n, path, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE_OF(flags, last)                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list more;                                                                                                  \
        va_start(more, last);                                                                                          \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }

int open(const char *name, int flags, ...) {
    MODE_OF(flags, flags)
    return opened(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...) {
    MODE_OF(flags, flags)
    return opened(AT_FDCWD, name, flags, mode);
}

int openat(int dir, const char *name, int flags, ...) {
    MODE_OF(flags, flags)
    return opened(dir, name, flags, mode);
}

int openat64(int dir, const char *name, int flags, ...) {
    MODE_OF(flags, flags)
    return opened(dir, name, flags, mode);
}

/* Keeps what a path names, under a number; 0 if there is nothing. The lock is held. */
static uint64_t keep(const char *path, uint64_t *inode) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    char link_to[PATH_MAX + 32];
    uint64_t number = ++backups;
    snprintf(link_to, sizeof link_to, "%s/%d-%llu", notes_dir, getpid(), (unsigned long long)number);
    *inode = st.st_ino;
    return syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, link_to, 0) == 0 ? number : 0;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    char old[PATH_MAX], new[PATH_MAX];
    int seen = resolve(from_dir, from, old) && resolve(to_dir, to, new);
    if (!seen) return syscall(SYS_renameat, from_dir, from, to_dir, to);
    pthread_mutex_lock(&lock);
    struct note n = {.kind = 'R', .seq = ++sequence};
    uint64_t replaced = 0;
    n.backup = keep(new, &replaced);
    n.offset = (uint64_t)getpid();
    int done = syscall(SYS_renameat, from_dir, from, to_dir, to);
    if (done == 0) note(&n, old, new, NULL);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int dir, const char *name, int flags) {
    char path[PATH_MAX];
    if (!resolve(dir, name, path)) return syscall(SYS_unlinkat, dir, name, flags);
    pthread_mutex_lock(&lock);
    struct note n = {.kind = (flags & AT_REMOVEDIR) ? 'X' : 'U', .seq = ++sequence, .offset = (uint64_t)getpid()};
    if (!(flags & AT_REMOVEDIR)) n.backup = keep(path, &n.inode);
    int done = syscall(SYS_unlinkat, dir, name, flags);
    if (done == 0) note(&n, path, NULL, NULL);
    pthread_mutex_unlock(&lock);
    return done;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int dir, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!resolve(dir, name, path)) return syscall(SYS_mkdirat, dir, name, mode);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_mkdirat, dir, name, mode);
    if (done == 0) {
        struct note n = {.kind = 'M', .seq = ++sequence};
        note(&n, path, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    char path[PATH_MAX];
    if (!resolve(to_dir, to, path)) return syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    pthread_mutex_lock(&lock);
    int done = syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    struct stat st;
    if (done == 0 && stat(path, &st) == 0) {
        struct note n = {.kind = 'C', .seq = ++sequence, .inode = st.st_ino};
        note(&n, path, NULL, NULL);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
