/* A runtime that fails now and then, in the way MODE, in front of the real one at REAL.

   Which calls fail depends on SEED and on which sandbox and which command of it a call is for: the same in each run.
   The first SPARED sandboxes are well. MODE 0 fails in all ways in turn. The file REPORT gets a letter, a for mode 1, for
   each failure. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void write_to(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(file, text, strlen(text)) != (ssize_t)strlen(text)) _exit(9);
    close(file);
}

/* Write to the file that an option of the runtime names. */
static void write_to_option(int argc, char **argv, const char *option, const char *text) {
    size_t length = strlen(option);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], option) && i + 1 < argc) write_to(argv[i + 1], text);
        if (!strncmp(argv[i], option, length) && argv[i][length] == '=') write_to(argv[i] + length + 1, text);
    }
}

/* Return the pid in the file that the option --pid-file names. The program ends if there is none. */
static pid_t first_process(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i++) {
        FILE *file = strcmp(argv[i], "--pid-file") ? NULL : fopen(argv[i + 1], "r");
        int pid = 0;
        if (file && fscanf(file, "%d", &pid) == 1 && pid > 1) return pid;
    }
    _exit(8);
}

int main(int argc, char **argv) {
    unsigned value = hash(2166136261u ^ SEED, last_part(argv[argc - 1], '-'));
    int starts = 0, runs = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "run")) runs = starts = 1;
        if (!strcmp(argv[i], "exec")) starts = 1;
        if (!strcmp(argv[i], "--process") && i + 1 < argc) value = hash(value, strstr(argv[i + 1], "process-"));
    }
    value ^= value >> 15;
    struct stat report = {0};
    stat(REPORT, &report);
    int mode = MODE ? MODE : 1 + report.st_size % MODES;
    const char *name = strrchr(argv[argc - 1], 's'); /* the last argument ends in s1, s2 and so on */
    int spared = !starts || (name && atoi(name + 1) <= SPARED);
    if (spared || value % 100 >= PERCENT) mode = 0;
    else write_to(REPORT, (char[]){(char)('a' + mode - 1), 0});
    switch (mode) {
        case 1: fprintf(stderr, "cannot do it\n"); return 1;
        case 2: return 1;
        case 3: return 0;
        case 4: raise(SIGKILL);
        case 5: {
            write_to_option(argc, argv, "--pid-file", "garbage");
            printf("Answer: garbage\n");
            return 1;
        }
        case 6: {
            pid_t self = getpid();
            if (fork() == 0) {
                for (int i = 0; i < 64; i++) close(i);
                usleep(15000); /* its command runs by now */
                kill(self, SIGKILL);
                _exit(0);
            }
            break;
        }
        case 7: for (;;) pause();
        case 9: case 10: case 11: case 12: case 13: {
            if (runs == (mode == 11)) break;
            pid_t child = fork();
            if (child == 0) break;
            waitpid(child, 0, 0);
            if (mode == 10 || mode == 11) for (;;) pause();
            if (mode == 13) {
                usleep(60000); /* its first command runs by now */
                kill(first_process(argc, argv), SIGKILL);
                usleep(300000); /* that command has ended with its sandbox */
                return 0;
            }
            usleep(400000); /* its commands run by now */
            if (mode == 12) return 1;
            raise(SIGKILL);
        }
        case 8: {
            write_to_option(argc, argv, "--log", "{\"level\": \"error\", \"msg\": \"cannot fork: Cannot allocate memory\"}\n");
            return 1;
        }
    }
    execv(REAL, argv);
    return 126;
}
