/* Any bytes as lines of a socket and as commands: framed in pieces, parsed or refused, changes made and said again to the same effect. */
#include "core/session/change.h"
#include "core/session/commands.h"
#include "core/wire/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one_change(const struct zf_options *now, const struct zf_command *c)
{
    const struct zf_change_place place = {.step = 40, .steps = 300, .run = "run"};
    struct zf_changes changes, again;
    struct zf_command back;
    struct zf_err e;
    if (zf_changes_make(&changes, now, c->word, c->count, &place, &e)) {
        if (!e.message[0] || e.code == ZF_OK) abort();
    } else {
        char *text = zf_changes_text(&changes, now, c->word, c->count, &place), *command = zf_changes_command(&changes, false);
        if (!text || !command) abort();
        if (changes.count) {
            if (zf_command_parse(&back, command, &e) || zf_changes_make(&again, now, back.word, back.count, &place, &e)) abort();
            if (!zf_options_equal(&again.wanted, &changes.wanted)) abort();
            zf_changes_free(&again);
            zf_command_free(&back);
        }
        free(text);
        free(command);
    }
    zf_changes_free(&changes);
}

static void one_command(const struct zf_options *now, const char *line)
{
    struct zf_command c;
    struct zf_err e;
    if (zf_command_parse(&c, line, &e)) {
        if (!e.message[0] || e.code == ZF_OK) abort();
    } else {
        if (c.count < c.row->least || c.count > ZF_COMMAND_WORDS) abort();
        if (c.row->arguments == ZF_ARGS_PAIRS) one_change(now, &c);
        if (c.row->arguments == ZF_ARGS_STEP_COMMAND && !c.number) abort();
    }
    zf_command_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const given[] = {"family=llama", "layers=1", "hidden=32", "heads=2", "train=x", "steps=300", "strategy=gpu_only"};
    struct zf_options now;
    struct zf_err e;
    struct zf_wire w;
    int fd[2];
    if (zf_options_init(&now, &e) || socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) abort();
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (zf_options_set_argument(&now, given[i], &e)) abort();
    zf_wire_open(&w, fd[0], 200, 1000);
    size_t piece = size ? 1 + data[0] : 1, lines = 0, newlines = 0;
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece, length;
        char *line;
        enum zf_wire_line found;
        if (send(fd[1], data + at, n, MSG_NOSIGNAL) != (ssize_t)n || zf_wire_read(&w)) abort();
        for (size_t i = 0; i < n; i++) newlines += data[at + i] == '\n';
        while ((found = zf_wire_line(&w, &line, &length)) != ZF_WIRE_NONE) {
            lines++;
            if (found == ZF_WIRE_TOO_LONG) continue;
            if (length > 200 || memchr(line, '\n', length)) abort();
            one_command(&now, line);
        }
    }
    if (lines > newlines + 1) abort();
    zf_wire_close(&w);
    close(fd[1]);
    zf_options_free(&now);
    return 0;
}
