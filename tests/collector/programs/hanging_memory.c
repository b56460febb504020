// A process of a user without any privilege whose memory does not answer: it maps a file of a file system in user space
// (FUSE, linux/fuse.h), whose server never answers a READ.
//
//   hanging_memory FILE USER MODE    as root: it mounts over FILE as fusermount3(1) does for any user, then becomes USER
//
// page  only a reader of that page waits; it publishes a process context (OTEP 4719) whose payload is there
// lock  a thread of it reads the page by way of /proc/self/mem, which keeps the lock of the memory map, and another one
//       waits to map something: from then on everybody waits who looks at the map or at the memory of this process
//
// Prints the address of the page when it is so, and calculates a little until it is killed. What waits goes on when its standard
// input ends.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZE = 1 << 16 };

// Shared with the server, which waits for none of it: whoever looks into a page of ours may wait for our own lock.
static volatile struct {
    char *page;
    pid_t waiting;  // the thread that waits for the lock; 0: none is to wait
    unsigned long mapped_so_often;
} *shared;

static void need(int condition, const char *what) {
    if (!condition) {
        perror(what);
        exit(1);
    }
}

// Answers everything but READ, until standard input ends.
static void *serve(void *argument) {
    int device = *(int *)argument;
    static char request[1 << 17], answer[1 << 12];
    for (;;) {
        if (read(device, request, sizeof request) < 0) {
            if (errno == EINTR || errno == ENOENT)
                continue;
            return NULL;
        }
        const struct fuse_in_header *in = (void *)request;
        struct fuse_out_header *out = (void *)answer;
        memset(answer, 0, sizeof answer);
        *out = (struct fuse_out_header){sizeof *out, 0, in->unique};
        switch (in->opcode) {
        case FUSE_READ:
        case FUSE_INTERRUPT:
        case FUSE_FORGET:
            continue;
        case FUSE_INIT:
            *(struct fuse_init_out *)(out + 1) = (struct fuse_init_out){.major = 7, .minor = 31, .max_write = SIZE};
            out->len += sizeof(struct fuse_init_out);
            break;
        case FUSE_GETATTR: {
            struct fuse_attr_out *attributes = (void *)(out + 1);
            attributes->attr_valid = 3600;
            attributes->attr = (struct fuse_attr){.ino = 1, .size = SIZE, .mode = S_IFREG | 0755, .nlink = 1};
            out->len += sizeof *attributes;
            break;
        }
        case FUSE_OPEN:
            out->len += sizeof(struct fuse_open_out);
            break;
        case FUSE_FLUSH:
        case FUSE_RELEASE:
            break;
        default:
            out->error = -ENOSYS;
        }
        need(write(device, answer, out->len) >= 0 || errno == ENOENT, "answer");
    }
}

static int sleeps_in_kernel(pid_t thread) {
    char path[64], status[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", thread);
    int file = open(path, O_RDONLY);
    need(file >= 0 && read(file, status, sizeof status - 1) > 0, path);
    close(file);
    return !strncmp(strrchr(status, ')'), ") D", 3);
}

// The server is a process of its own, so that it ends with standard input whatever waits for it.
static void start_server(int device) {
    if (fork()) {
        close(device);  // else the file system would live as long as the one that waits for it
        return;
    }
    pthread_t thread;
    need(!pthread_create(&thread, NULL, serve, &device), "pthread_create");
    while (!shared->page)
        usleep(1000);
    for (unsigned long before = -1; shared->waiting;) {
        if (before == shared->mapped_so_often && sleeps_in_kernel(shared->waiting))
            break;
        before = shared->mapped_so_often;
        usleep(100000);
    }
    dprintf(1, "%lu\n", (unsigned long)(uintptr_t)shared->page);
    while (read(0, &(char){0}, 1) > 0)
        ;
    _exit(0);
}

static void *hold_the_lock(void *page) {
    int memory = open("/proc/self/mem", O_RDONLY);
    need(memory >= 0, "/proc/self/mem");
    return pread(memory, &(char){0}, 1, (off_t)(uintptr_t)page) == 1 ? page : NULL;
}

static void *wait_for_the_lock(void *page) {
    shared->waiting = gettid();
    shared->page = page;
    for (; page; shared->mapped_so_often++)
        munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    return NULL;
}

static void publish_context(char *page) {
    struct {
        char signature[8];
        uint32_t version, size;
        uint64_t published, payload;
    } header = {"OTEL_CTX", 2, 100, 1, (uintptr_t)page};
    memcpy(header.signature, "OTEL_CTX", 8);
    int file = memfd_create("OTEL_CTX", 0);
    need(file >= 0 && !ftruncate(file, 4096), "memfd_create");
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    need(mapped != MAP_FAILED, "mmap");
    memcpy(mapped, &header, sizeof header);
}

int main(int argc, char **argv) {
    need(argc == 4, "FILE USER MODE");
    int user = atoi(argv[2]);
    need(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "unshare");
    int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    need(device >= 0, "/dev/fuse");
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=100755,user_id=%d,group_id=%d", device, user, user);
    need(!mount("hanging", argv[1], "fuse", MS_NOSUID | MS_NODEV, options), "mount");
    need(!setgid(user) && !setuid(user) && !prctl(PR_SET_DUMPABLE, 1) && !prctl(PR_SET_PDEATHSIG, SIGKILL), "setuid");
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(shared != MAP_FAILED, "mmap");
    start_server(device);
    int file = open(argv[1], O_RDONLY);
    struct stat status;
    need(file >= 0 && !fstat(file, &status), argv[1]);  // fstat: until then the kernel takes it to be empty
    char *page = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    need(page != MAP_FAILED, "mmap");
    pthread_t thread;
    if (!strcmp(argv[3], "lock")) {
        need(!pthread_create(&thread, NULL, wait_for_the_lock, page), "pthread_create");  // first: it takes the lock, too
        need(!pthread_create(&thread, NULL, hold_the_lock, page), "pthread_create");
    } else {
        publish_context(page);
        shared->page = page;
    }
    for (volatile unsigned step = 1;; step++)
        if (step % (1 << 22) == 0)
            usleep(20000);
}
