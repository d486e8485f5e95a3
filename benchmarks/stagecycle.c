/*
 * stagecycle - the system calls of the hand-off between two queues, and nothing else.
 *
 * The yardstick of the benchmarks: whatever queuedriver needs beyond this is our own cost. No
 * registration, no beat, no journal, no recovery; a crash here leaves what the page
 * docs/queue-on-disk.rst says it leaves.
 *
 *   stagecycle fill   QUEUE N SIZE [FIRST]    N items of SIZE bytes straight into QUEUE, to set up;
 *                                             numbered from FIRST (0)
 *   stagecycle submit QUEUE N [-d]            written in QUEUE/.queuedriver/incoming, renamed in
 *   stagecycle claim  QUEUE [-p P] [-n MAX]   claim, then finish without outputs
 *   stagecycle cycle  IN OUT [-d] [-p P] [-n MAX] [-f FIRST -t TOTAL]
 *                                             claim, read, write 1 KiB, commit, publish, finish
 *   stagecycle stages IN OUT [IN OUT]... -n N [-l LIMIT] [-d] [-g GROUP]
 *                                             the cycle in a process for each IN and OUT, until each
 *                                             has done N; none goes on while LIMIT wait in its OUT
 *
 *   -d durable (fsync as the protocol says)   -p P processes on one queue   -n stop after MAX each
 *   -g durable, so many at most together: three syncs for all, before the commits, before the
 *      publications, and before the inputs go
 *   -f, -t the processes are number FIRST and the next ones of TOTAL, the others on other hosts
 *
 * One pass lists the directory once. With P processes each one first takes the names whose hash
 * is its share, then lists again and helps with the rest. The answer is one line of JSON on stdout:
 * documents, ns (from the start of all to the last finish), ns_per_document, lost (claims that
 * another process won), listing_ns and listed (all passes of all processes together). For stages it
 * is ns a hand-off of all of them (ns_per_document), and at the sum of their speeds (ns_apart).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OUTPUT = 1024, NAME = 512, SERIAL = 64, LOST_IN_A_ROW = 8, NAP_NS = 1000000, MOST = 64 };

struct options {
    int durable, processes, first, total, group;
    long max, limit;
};

/* What one process reports; in memory shared with the parent. */
struct tally {
    long documents, lost, listed;
    int64_t listing_ns, start_ns, end_ns;
};

struct names {
    char *text;     /* docids, each ended by NUL */
    size_t *at;     /* where each begins in text */
    size_t count, used, room_text, room_at;
};

static char output[OUTPUT];

static void die(const char *what)
{
    fprintf(stderr, "stagecycle: %s: %s\n", what, strerror(errno));
    exit(74);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* N: the driver's id, the microsecond (never the same twice), and four digits drawn at the start. */
static void form_serial(char *n, int id, unsigned salt)
{
    static int64_t last;
    int64_t us = clock_ns(CLOCK_REALTIME) / 1000;
    last = us > last ? us : last + 1;
    sprintf(n, "%d-%014llx%04x", id, (unsigned long long)last, salt);
}

static unsigned draw_salt(void)
{
    unsigned short salt;
    if (getrandom(&salt, sizeof salt, 0) != sizeof salt) die("getrandom");
    return salt;
}

static int open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) die(path);
    return fd;
}

static void write_new(int dir, const char *name, const char *data, size_t size, int durable)
{
    int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) die(name);
    if (size && write(fd, data, size) != (ssize_t)size) die("write");
    if (durable && fsync(fd)) die("fsync");
    if (close(fd)) die("close");
}

static void sync_directory(int dir)
{
    if (fsync(dir)) die("fsync of a directory");
}

static void list_ready(int dir, struct names *names)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) die("listing");
    names->count = names->used = 0;
    for (struct dirent *e; (e = readdir(stream));) {
        size_t length = strlen(e->d_name);
        if (length <= 6 || strcmp(e->d_name + length - 6, ".ready")) continue;
        if (names->used + length > names->room_text) {
            names->room_text = 2 * (names->used + length);
            names->text = realloc(names->text, names->room_text);
        }
        if (names->count == names->room_at) {
            names->room_at = names->room_at ? 2 * names->room_at : 1024;
            names->at = realloc(names->at, names->room_at * sizeof *names->at);
        }
        if (!names->text || !names->at) die("memory");
        names->at[names->count++] = names->used;
        memcpy(names->text + names->used, e->d_name, length - 6);
        names->text[names->used + length - 6] = 0;
        names->used += length - 5;
    }
    closedir(stream);
}

/* Returns 0 when another process was faster. */
static int claim(int in, const char *docid, const char *n, char *working)
{
    char ready[NAME];
    sprintf(ready, "%s.ready", docid);
    sprintf(working, "%s.%s.working", docid, n);
    if (!renameat(in, ready, in, working)) return 1;
    if (errno != ENOENT) die(ready);
    return 0;
}

static void read_input(int in, const char *working)
{
    static char *data;
    static off_t room;
    struct stat st;
    int fd = openat(in, working, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) die(working);
    if (st.st_size > room && !(data = realloc(data, room = st.st_size))) die("memory");
    if (read(fd, data, st.st_size) != st.st_size) die("read");
    close(fd);
}

/* Where the file system cannot refuse to replace, as NFS: look whether the name is free, and rename. */
static void publish(int out, const char *writing, const char *ready)
{
    static int cannot_refuse;
    if (!cannot_refuse) {
        if (!renameat2(out, writing, out, ready, RENAME_NOREPLACE)) return;
        if (errno != EINVAL) die("publish");
        cannot_refuse = 1;
    }
    int fd = openat(out, ready, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) errno = EEXIST;
    if (fd >= 0 || errno != ENOENT || renameat(out, writing, out, ready)) die("publish");
}

static int cycle(int in, int out, const char *docid, const char *n, int durable)
{
    char working[NAME], written[NAME], writing[NAME], ready[NAME];
    if (!claim(in, docid, n, working)) return 0;
    read_input(in, working);
    sprintf(writing, "%s.%s.writing", docid, n);
    write_new(out, writing, output, OUTPUT, durable);
    if (durable) sync_directory(out);
    sprintf(written, "%s.%s.written", docid, n);
    if (renameat(in, working, in, written)) die("commit");
    if (durable) sync_directory(in);
    sprintf(ready, "%s.ready", docid);
    publish(out, writing, ready);
    if (durable) sync_directory(out);
    if (unlinkat(in, written, 0)) die("finish");
    return 1;
}

/* A document that is claimed, and whose output is written. */
struct held {
    const char *docid;
    char n[SERIAL];
};

static void take(int in, int out, const struct held *one)
{
    char working[NAME], writing[NAME];
    if (!claim(in, one->docid, one->n, working)) die("a stage of its own");
    read_input(in, working);
    sprintf(writing, "%s.%s.writing", one->docid, one->n);
    write_new(out, writing, output, OUTPUT, 0);
}

static void hand_over(int in, int out, const struct held *held, int count)
{
    char before[NAME], after[NAME];
    if (syncfs(out)) die("syncfs");
    for (const struct held *one = held; one < held + count; one++) {
        sprintf(before, "%s.%s.working", one->docid, one->n);
        sprintf(after, "%s.%s.written", one->docid, one->n);
        if (renameat(in, before, in, after)) die("commit");
    }
    sync_directory(in);
    for (const struct held *one = held; one < held + count; one++) {
        sprintf(before, "%s.%s.writing", one->docid, one->n);
        sprintf(after, "%s.ready", one->docid);
        publish(out, before, after);
    }
    sync_directory(out);
    for (const struct held *one = held; one < held + count; one++) {
        sprintf(after, "%s.%s.written", one->docid, one->n);
        if (unlinkat(in, after, 0)) die("finish");
    }
}

static int claim_and_finish(int in, const char *docid, const char *n)
{
    char working[NAME];
    if (!claim(in, docid, n, working)) return 0;
    if (unlinkat(in, working, 0)) die("finish");
    return 1;
}

static unsigned hash(const char *docid)
{
    unsigned h = 2166136261u;                       /* FNV-1a */
    for (; *docid; docid++) h = (h ^ (unsigned char)*docid) * 16777619u;
    return h;
}

/* One process: passes over the queue until a listing shows nothing that waits. out < 0: no outputs. */
static void drive(int in, int out, int me, const struct options *o, struct tally *tally)
{
    struct names names = {0};
    unsigned salt = draw_salt();
    char n[64];
    for (int pass = 0; tally->documents < o->max; pass++) {
        int64_t before = clock_ns(CLOCK_MONOTONIC);
        list_ready(in, &names);
        tally->listing_ns += clock_ns(CLOCK_MONOTONIC) - before;
        tally->listed += names.count;
        if (!names.count) break;
        int own_only = pass == 0 && o->total > 1, in_a_row = 0;
        size_t first = own_only ? 0 : names.count * me / o->total;
        for (size_t i = 0; i < names.count && tally->documents < o->max; i++) {
            const char *docid = names.text + names.at[(first + i) % names.count];
            if (own_only && hash(docid) % o->total != (unsigned)me) continue;
            form_serial(n, me + 1, salt);
            int won = out < 0 ? claim_and_finish(in, docid, n) : cycle(in, out, docid, n, o->durable);
            if (won) {
                tally->documents++;
                tally->end_ns = clock_ns(CLOCK_MONOTONIC);
                in_a_row = 0;
            } else {
                tally->lost++;
                if (++in_a_row == LOST_IN_A_ROW) break;   /* this listing is stale: look again */
            }
        }
        if (o->total == 1) break;
    }
}

static void drive_all(const char *in_path, const char *out_path, const struct options *o)
{
    int in = open_directory(in_path), out = out_path ? open_directory(out_path) : -1, gate[2];
    size_t size = o->processes * sizeof(struct tally);
    struct tally sum = {0}, *tallies = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tallies == MAP_FAILED || pipe(gate)) die("set-up");
    for (int me = 0; me < o->processes; me++) {
        pid_t pid = fork();
        if (pid < 0) die("fork");
        if (pid == 0) {
            char byte;
            close(gate[1]);
            if (read(gate[0], &byte, 1)) die("gate");   /* all start when the parent closes it */
            drive(in, out, o->first + me, o, &tallies[me]);
            _exit(0);
        }
    }
    usleep(20000);                                      /* let every child reach the gate */
    int64_t start = clock_ns(CLOCK_MONOTONIC);
    close(gate[1]);
    for (int status; wait(&status) > 0;)
        if (status) exit(74);
    for (int me = 0; me < o->processes; me++) {
        sum.documents += tallies[me].documents;
        sum.lost += tallies[me].lost;
        sum.listed += tallies[me].listed;
        sum.listing_ns += tallies[me].listing_ns;
        if (tallies[me].end_ns > sum.end_ns) sum.end_ns = tallies[me].end_ns;
    }
    int64_t ns = sum.documents ? sum.end_ns - start : 0;
    printf("{\"documents\": %ld, \"ns\": %lld, \"ns_per_document\": %.1f, \"lost\": %ld, "
           "\"listed\": %ld, \"listing_ns\": %lld}\n",
           sum.documents, (long long)ns, sum.documents ? (double)ns / sum.documents : 0.0, sum.lost,
           sum.listed, (long long)sum.listing_ns);
}

/* How many items wait in a queue. */
static long count_ready(int dir)
{
    struct names names = {0};
    list_ready(dir, &names);
    free(names.text);
    free(names.at);
    return names.count;
}

/* One stage of a chain: passes over its queue until it has handed over all documents there are. */
static void drive_stage(int in, int out, int me, const struct options *o, struct tally *tally)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    struct names names = {0};
    unsigned salt = draw_salt();
    struct held held[MOST];
    int together = o->group ? o->group : 1, count = 0;
    long room = o->limit ? 0 : o->max;
    while (tally->documents < o->max) {
        list_ready(in, &names);
        if (!names.count) nanosleep(&nap, NULL);
        for (size_t i = 0; i < names.count; i++) {
            while (room <= 0 && (room = o->limit - count_ready(out)) <= 0) nanosleep(&nap, NULL);
            if (!tally->start_ns) tally->start_ns = clock_ns(CLOCK_MONOTONIC);
            held[count].docid = names.text + names.at[i];
            form_serial(held[count].n, me + 1, salt);
            if (o->group) take(in, out, &held[count]);
            else if (!cycle(in, out, held[0].docid, held[0].n, o->durable)) die("a stage of its own");
            room--;
            if (++count < together && i + 1 < names.count) continue;
            if (o->group) hand_over(in, out, held, count);
            tally->documents += count;
            count = 0;
            tally->end_ns = clock_ns(CLOCK_MONOTONIC);
        }
    }
}

/* Stages that run at once, each a process of its own from one queue to another. */
static void drive_stages(char **queue, int stages, const struct options *o)
{
    size_t size = stages * sizeof(struct tally);
    struct tally *tallies = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                 -1, 0);
    int gate[2];
    if (tallies == MAP_FAILED || pipe(gate)) die("set-up");
    for (int me = 0; me < stages; me++) {
        int in = open_directory(queue[2 * me]), out = open_directory(queue[2 * me + 1]);
        pid_t pid = fork();
        if (pid < 0) die("fork");
        if (pid == 0) {
            char byte;
            close(gate[1]);
            if (read(gate[0], &byte, 1)) die("gate");
            struct options mine = *o;
            if (me == stages - 1) mine.limit = 0;           /* nobody empties the last queue */
            drive_stage(in, out, me, &mine, &tallies[me]);
            _exit(0);
        }
    }
    usleep(20000);
    close(gate[1]);
    for (int status; wait(&status) > 0;)
        if (status) exit(74);
    int64_t start = tallies[0].start_ns, end = 0;
    double per_second = 0;
    for (int me = 0; me < stages; me++) {
        struct tally *t = &tallies[me];
        if (t->end_ns > end) end = t->end_ns;
        per_second += 1e9 * t->documents / (t->end_ns - t->start_ns);
    }
    printf("{\"ns_per_document\": %.1f, \"ns_apart\": %.1f}\n",
           (double)(end - start) / (stages * o->max), 1e9 / per_second);
}

static void place(const char *queue, long first, long count, size_t size, int submit, int durable)
{
    int dir = open_directory(queue), incoming = -1;
    char *data = calloc(1, size + 1), name[NAME], n[64], aside[NAME];
    unsigned salt = draw_salt();
    if (submit && (incoming = openat(dir, ".queuedriver/incoming", O_RDONLY | O_DIRECTORY)) < 0)
        die("incoming");
    int64_t start = clock_ns(CLOCK_MONOTONIC);
    for (long i = first; i < first + count; i++) {
        sprintf(name, "doc%07ld.ready", i);
        if (!submit) {
            write_new(dir, name, data, size, 0);
            continue;
        }
        form_serial(n, 1, salt);
        sprintf(aside, "doc%07ld.%s.writing", i, n);
        write_new(incoming, aside, data, size, durable);
        if (renameat2(incoming, aside, dir, name, RENAME_NOREPLACE)) die(name);
        if (durable) sync_directory(dir), sync_directory(incoming);
    }
    int64_t ns = clock_ns(CLOCK_MONOTONIC) - start;
    printf("{\"documents\": %ld, \"ns\": %lld, \"ns_per_document\": %.1f}\n", count, (long long)ns,
           count ? (double)ns / count : 0.0);
}

static void usage(void)
{
    fprintf(stderr, "usage: stagecycle fill QUEUE N SIZE [FIRST] | submit QUEUE N [-d] |\n"
                    "       claim QUEUE [-p P] [-n MAX] |\n"
                    "       cycle IN OUT [-d] [-p P] [-n MAX] [-f FIRST -t TOTAL] |\n"
                    "       stages IN OUT [IN OUT]... -n N [-l LIMIT] [-d] [-g GROUP]\n");
    exit(64);
}

int main(int argc, char **argv)
{
    struct options o = {.processes = 1, .max = 1L << 60};
    for (int option; (option = getopt(argc, argv, "dp:n:l:f:t:g:")) != -1;) {
        if (option == 'd') o.durable = 1;
        else if (option == 'g') o.group = atoi(optarg);
        else if (option == 'p') o.processes = atoi(optarg);
        else if (option == 'n') o.max = atol(optarg);
        else if (option == 'l') o.limit = atol(optarg);
        else if (option == 'f') o.first = atoi(optarg);
        else if (option == 't') o.total = atoi(optarg);
        else usage();
    }
    char **word = argv + optind;
    int words = argc - optind;
    if (words < 2 || o.processes < 1 || o.first < 0 || o.group < 0 || o.group > MOST) usage();
    if (!o.total) o.total = o.processes;
    memset(output, 'x', OUTPUT);
    if (!strcmp(word[0], "fill") && (words == 4 || words == 5))
        place(word[1], words == 5 ? atol(word[4]) : 0, atol(word[2]), atol(word[3]), 0, 0);
    else if (!strcmp(word[0], "submit") && words == 3)
        place(word[1], 0, atol(word[2]), OUTPUT, 1, o.durable);
    else if (!strcmp(word[0], "claim") && words == 2) drive_all(word[1], NULL, &o);
    else if (!strcmp(word[0], "cycle") && words == 3) drive_all(word[1], word[2], &o);
    else if (!strcmp(word[0], "stages") && words > 2 && words % 2)
        drive_stages(word + 1, words / 2, &o);
    else usage();
    return 0;
}
