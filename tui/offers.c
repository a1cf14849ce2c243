/* What is asked or told over the panels without a key having called for it: the trainer's questions and long answers, how a run ended. Keys
 * that were typed before a person can have seen it are not for it: it waits, in its turn, until the line is empty and the keys are quiet,
 * and it steps back behind the line at a key that comes too soon. */
#include "tui/app_impl.h"
#include "tui/prompt.h"

#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define CALM 0.4   /* seconds without a key, before it opens */
#define GLANCE 0.5 /* seconds on the screen, before a key is meant for it */

struct zf_offer {
    struct zf_offer *next;
    enum zf_dialog dialog;
    char *title, *text, *command;
};

static void free_offer(struct zf_offer *one)
{
    free(one->title);
    free(one->text);
    free(one->command);
    free(one);
}

void zf_app_offer(struct zf_app *a, enum zf_dialog d, const char *title, const char *text, const char *command)
{
    struct zf_offer *one = calloc(1, sizeof *one), **end = &a->offers;
    if (one) {
        *one = (struct zf_offer){NULL, d, strdup(title), strdup(text), command ? strdup(command) : NULL};
        if (one->title && one->text && (one->command || !command)) {
            while (*end) end = &(*end)->next;
            *end = one;
            a->dirty = true;
            return;
        }
        free_offer(one);
    }
    zf_app_say(a, ZF_STYLE_BAD, "%s: no memory to show what it says", title);
}

void zf_app_forget_offers(struct zf_app *a)
{
    for (struct zf_offer *one; (one = a->offers);) {
        a->offers = one->next;
        free_offer(one);
    }
}

static bool has_turn(const struct zf_app *a)
{
    return a->offers && a->dialog == ZF_DIALOG_NONE && !a->pasting && !(a->typing && !zf_prompt_empty());
}

double zf_app_open_offer(struct zf_app *a, double now)
{
    if (!has_turn(a)) return -1;
    double wait = a->key_at + CALM - now;
    if (wait > 0) return wait;
    struct zf_offer *one = a->offers;
    a->offers = one->next;
    zf_app_close_dialog(a);
    a->dialog = one->dialog;
    a->dialog_title = one->title;
    a->dialog_text = one->text;
    a->dialog_command = one->command;
    a->offered = one;
    a->seen_at = 0;
    one->title = one->text = one->command = NULL;
    return -1;
}

bool zf_app_step_back(struct zf_app *a)
{
    struct zf_offer *one = a->offered;
    if (!one) return false;
    *one = (struct zf_offer){a->offers, a->dialog, a->dialog_title, a->dialog_text, a->dialog_command};
    a->offers = one;
    a->offered = NULL;
    a->dialog_title = a->dialog_text = a->dialog_command = NULL;
    zf_app_close_dialog(a);
    return true;
}

bool zf_app_too_soon(const struct zf_app *a)
{
    return a->offered && (a->seen_at <= 0 || zf_clock() - a->seen_at < GLANCE);
}

const char *zf_app_waits(const struct zf_app *a, enum zf_dialog *d)
{
    if (!a->offers || a->dialog != ZF_DIALOG_NONE || has_turn(a)) return NULL;
    *d = a->offers->dialog;
    return a->offers->title;
}
