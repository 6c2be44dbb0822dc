/* A runtime that fails now and then, in the way MODE, in front of the real one at REAL.

   Which calls fail depends on SEED and on which sandbox and which command of it a call is for: the same in each run. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned hash(unsigned value, const char *text) {
    for (; *text; text++) value = (value ^ (unsigned char)*text) * 16777619u;
    return value;
}

static const char *last_part(const char *text, char separator) {
    const char *found = strrchr(text, separator);
    return found ? found + 1 : text;
}

static void write_garbage(int argc, char **argv) {
    for (int i = 1; i < argc - 1; i++)
        if (!strcmp(argv[i], "--pid-file")) {
            int file = open(argv[i + 1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (write(file, "garbage", 7) != 7) _exit(9);
            close(file);
        }
}

int main(int argc, char **argv) {
    unsigned value = hash(2166136261u ^ SEED, last_part(argv[argc - 1], '-'));
    int starts = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "run") || !strcmp(argv[i], "exec")) starts = 1;
        if (!strcmp(argv[i], "--process") && i + 1 < argc) value = hash(value, strstr(argv[i + 1], "process-"));
    }
    value ^= value >> 15;
    if (starts && value % 100 < PERCENT) switch (MODE) {
        case 1: fprintf(stderr, "cannot do it\n"); return 1;
        case 2: return 1;
        case 3: return 0;
        case 4: raise(SIGKILL);
        case 5: write_garbage(argc, argv); return 1;
        case 6: {
            pid_t self = getpid();
            if (fork() == 0) {
                for (int i = 0; i < 64; i++) close(i);
                usleep(30000);
                kill(self, SIGKILL);
                _exit(0);
            }
            break;
        }
        case 7: for (;;) pause();
    }
    execv(REAL, argv);
    return 126;
}
