/* Texts of files, of people and of other programs on their way to a terminal: they must not drive it. This is the one place where such text
 * is made harmless: what may be shown stands for itself, anything else becomes an escape: \n, \t, \x1b, \u009b (of C1) or \u202e (of what
 * would move other text), \xff for a byte of no character. Pure functions; no state. */
#ifndef ZF_BASE_SHOW_H
#define ZF_BASE_SHOW_H

#include <stddef.h>
#include <stdio.h>

/* The character at s as it may be shown. Returns its size; *used gets the bytes of s that it stands for (size > 0). */
enum { ZF_SHOWN = 8 };
size_t zf_text_show_one(char to[ZF_SHOWN], const char *s, size_t size, size_t *used);
/* All of a text, on one line, NUL-terminated: cut at a character, and "..." for the rest, where there is no room (8 at least). Returns
 * `to`.
 */
char *zf_text_show(char *to, size_t room, const char *text, size_t size);

void zf_show(FILE *to, const char *text);                                                /* on one line */
void zf_show_line(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* what it makes, on one line, and a newline */
void zf_show_lines(FILE *to, const char *text, size_t size);                             /* newlines and tabs stay what they are */
/* What is for programs, too: its very bytes, but on a terminal as zf_show_lines does. */
void zf_show_terminal(FILE *to, const char *text, size_t size);

/* A name in a command that is suggested, as a shell needs it: quoted where that is needed, harmless; RUN where there is no room for it.
 * Returns `to`. */
enum { ZF_SHELL_WORD = 1024 };
char *zf_shell_word(char to[ZF_SHELL_WORD], const char *name);

#endif
