/* zenflow-console: what a person types. What has a screen is done here; all else is the trainer's work: it takes this process over, so exit
 * codes, signals and streams stay as they are. */
#include "tui/launch.h"

#include <fcntl.h>
#include <locale.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct zf_err e = {0};
    bool handled;
    int code;
    for (int fd = open("/dev/null", O_RDWR); fd >= 0 && fd <= 2; fd = dup(fd))
        continue; /* a closed stdout must not become one of our files */
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C"); /* 0.5 is 0.5 everywhere */
    enum zf_status s = zf_launch(argc, argv, &handled, &code, &e);
    if (!s && !handled) s = zf_become_trainer(argv, &e);
    if (s) zf_err_print(NULL, &e);
    return s ? (int)s : code;
}
