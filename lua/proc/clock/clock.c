// Preloaded into redis-server, this makes its wall clock read as many nanoseconds more as
// a file says, an int64 that may change at any time. The monotonic clock stays as it is:
// a step of a machine's clock does not move that either.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *file = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  if (file == MAP_FAILED) {
    abort();
  }
  close(fd);
  offset = file;
}

// The allocator asks for the time before map_offset has run, so nothing here allocates or
// looks up a symbol.
int clock_gettime(clockid_t id, struct timespec *t) {
  int failed = (int)syscall(SYS_clock_gettime, id, t);
  if (!failed && id == CLOCK_REALTIME && offset) {
    int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + *offset;
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  (void)zone;
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) {
    *t = now.tv_sec;
  }
  return now.tv_sec;
}
