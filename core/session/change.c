/* See change.h. */
#include "core/session/change.h"

#include "core/pipeline/policy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum zf_status zf_options_copy(struct zf_options *to, const struct zf_options *from, struct zf_err *e)
{
    ZF_TRY(zf_options_init(to, e));
    enum zf_status s = ZF_OK;
    for (enum zf_option_id id = 0; !s && id < ZF_OPTIONS; id++) {
        struct zf_origin origin = from->origin[id];
        char *text = zf_options_get_text(from, id);
        if (origin.kind == ZF_ORIGIN_SET) origin.kind = ZF_ORIGIN_FILE, origin.file = "--set"; /* its rival is settled already */
        s = text ? zf_options_set(to, zf_option_table[id].name, text, &origin, e) : zf_fail_memory(e, "the options");
        to->origin[id].kind = from->origin[id].kind;
        free(text);
    }
    for (size_t i = 0; !s && i < from->at_count; i++) {
        char step[32];
        snprintf(step, sizeof step, "%" PRId64, from->at[i].step);
        s = zf_options_at(to, step, from->at[i].command, &from->at[i].origin, e);
    }
    if (!s && from->file && !(to->file = zf_arena_strdup(&to->arena, from->file))) s = zf_fail_memory(e, "the options");
    if (s) zf_options_free(to);
    return s;
}

static bool numeric(const struct zf_option *row)
{
    return row->type == ZF_TYPE_INT || row->type == ZF_TYPE_SIZE || row->type == ZF_TYPE_DURATION || row->type == ZF_TYPE_FLOAT;
}

static double number_of(const struct zf_options *o, const struct zf_option *row)
{
    const void *field = (const char *)o + row->offset;
    int64_t whole;
    double real;
    memcpy(&whole, field, sizeof whole);
    memcpy(&real, field, sizeof real);
    return row->type == ZF_TYPE_INT || row->type == ZF_TYPE_SIZE ? (double)whole : real;
}

/* +10%, -10%, x0.5, *0.5: the factor. */
static bool factor_of(const char *word, double *factor)
{
    char *end;
    bool times = word[0] == 'x' || word[0] == '*', sign = word[0] == '+' || word[0] == '-';
    if (!times && !sign) return false;
    double x = strtod(word + 1, &end);
    if (end == word + 1 || strspn(word + 1, "0123456789.eE+-") < (size_t)(end - word - 1)) return false;
    if (times ? *end != 0 : strcmp(end, "%") != 0) return false;
    *factor = times ? x : 1 + (word[0] == '-' ? -x : x) / 100;
    return true;
}

/* The value text that a word stands for; in the arena of `wanted`. */
static enum zf_status value_of(const char **out, struct zf_options *wanted, const struct zf_option *row, const char *word,
                               const struct zf_change_place *place, struct zf_err *e)
{
    double factor;
    *out = word;
    if (!strcmp(word, "default")) {
        *out = row->fallback;
        if (zf_option_id(row) == ZF_OPT_steps)
            return zf_fail(e, ZF_USAGE, row->name, "it has no default while a run goes on; a number of steps is expected");
        return ZF_OK;
    }
    if (!numeric(row) || !factor_of(word, &factor)) return ZF_OK;
    double x = number_of(wanted, row);
    if (zf_option_id(row) == ZF_OPT_steps && !x) x = (double)place->steps;
    if (!x && row->choice_count)
        return zf_fail(e, ZF_USAGE, row->name, "it is %s, which cannot be multiplied; a value is expected", row->choices[0]);
    x *= factor;
    *out = row->type == ZF_TYPE_INT || row->type == ZF_TYPE_SIZE ? zf_arena_printf(&wanted->arena, "%.0f", x)
                                                                 : zf_arena_printf(&wanted->arena, "%.12g", x);
    return *out ? ZF_OK : zf_fail_memory(e, row->name);
}

/* Says how it can be changed all the same. */
static enum zf_status at_a_start(const struct zf_option *row, const char *word, const struct zf_options *now,
                                 const struct zf_change_place *place, struct zf_err *e)
{
    const char *run = place->run ? place->run : "RUN";
    bool quote = strpbrk(word, " \t\"'\\$;&|<>()*?[]") != NULL;
    const char *mark = quote ? "'" : "", *file = now->file ? now->file : "run.cfg";
    if (zf_option_free_to_change(zf_option_id(row)))
        return zf_fail(
            e, ZF_DIFFERENT, row->name,
            "it changes at a start only; stop, and go on with it: `zenflow-console send %s stop`, then `zenflow-console %s --set "
            "%s%s=%s%s`",
            run, file, mark, row->name, word, mark);
    return zf_fail(e, ZF_DIFFERENT, row->name,
                   "it changes at a start only, and is part of what this run is; stop, and begin another run from the export: "
                   "`zenflow-console send %s stop`, then `zenflow-console %s --set path=%s/exports/step-N --set dir=NAME --set %s%s=%s%s`",
                   run, file, run, mark, row->name, word, mark);
}

/* A changed text, and for `steps` what it means where epochs were given. */
static char *text_of(const struct zf_options *o, enum zf_option_id id, const struct zf_change_place *place)
{
    char *text = NULL;
    if (id == ZF_OPT_steps && !o->steps) return asprintf(&text, "%" PRIu64, place->steps) < 0 ? NULL : text;
    return zf_options_get_text(o, id);
}

static enum zf_status list_changes(struct zf_changes *c, const struct zf_options *now, const struct zf_change_place *place,
                                   struct zf_err *e)
{
    if (!(c->list = calloc(ZF_OPTIONS, sizeof *c->list))) return zf_fail_memory(e, "a change");
    for (enum zf_option_id id = 0; id < ZF_OPTIONS; id++) {
        char *before = text_of(now, id, place), *after = text_of(&c->wanted, id, place);
        bool known = before && after, same = known && !strcmp(before, after);
        if (same || !known || (id == ZF_OPT_epochs && c->wanted.steps)) { /* epochs gives way to steps, which tells it all */
            free(before);
            free(after);
            if (!known) return zf_fail_memory(e, "a change");
        } else {
            c->list[c->count++] = (struct zf_change){id, before, after};
        }
    }
    return ZF_OK;
}

/* Multiplying these by more asks; so does dividing, where that undoes as much. */
static const struct {
    enum zf_option_id id;
    double most;
    bool divided;
    const char *warning;
} big[] = {{ZF_OPT_learning_rate, 10, true, ""},
           {ZF_OPT_update_interval, 4, false, ", and training is known to bear windows of up to 16 steps; longer ones can set it back"}};

static void questions(struct zf_changes *c, const struct zf_options *now, const struct zf_change_place *place)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        const struct zf_option *row = &zf_option_table[big[i].id];
        double before = number_of(now, row), after = number_of(&c->wanted, row);
        if (big[i].id == ZF_OPT_update_interval && before == 0) before = place->interval;
        if (before > 0 && after > before * big[i].most * (1 + 1e-9))
            n += (size_t)snprintf(c->ask + n, sizeof c->ask - n, "%s%s grows to %.4g times what it is (more than %g)%s", n ? "; " : "",
                                  row->name, after / before, big[i].most, big[i].warning);
        char part[32] = "0";
        if (after > 0) snprintf(part, sizeof part, "1/%.4g", before / after);
        if (big[i].divided && before > after * big[i].most * (1 + 1e-9))
            n += (size_t)snprintf(c->ask + n, sizeof c->ask - n, "%s%s falls to %s of what it is (less than 1/%g)", n ? "; " : "",
                                  row->name, part, big[i].most);
    }
    if (c->wanted.steps != now->steps && c->wanted.steps && (uint64_t)c->wanted.steps <= place->step && n < sizeof c->ask)
        snprintf(c->ask + n, sizeof c->ask - n, "%sstep %" PRIu64 " is done: the run would end now", n ? "; " : "", place->step);
}

static enum zf_status set_all(struct zf_changes *c, const struct zf_options *now, const char *const *words, size_t count,
                              const struct zf_change_place *place, struct zf_err *e)
{
    const struct zf_origin origin = {.kind = ZF_ORIGIN_COMMAND};
    bool seen[ZF_OPTIONS] = {false};
    for (size_t i = 0; i + 1 < count; i += 2) {
        const struct zf_option *row = zf_option_find(words[i]);
        const char *value;
        if (!row) return zf_option_unknown(words[i], "set", e);
        if (row->when == ZF_WHEN_RESTART) return at_a_start(row, words[i + 1], now, place, e);
        if (seen[zf_option_id(row)]) return zf_fail(e, ZF_USAGE, row->name, "it is named twice in one command; once is expected");
        seen[zf_option_id(row)] = true;
        ZF_TRY(value_of(&value, &c->wanted, row, words[i + 1], place, e));
        ZF_TRY(zf_options_set(&c->wanted, row->name, value, &origin, e));
        if (zf_option_id(row) == ZF_OPT_steps && !c->wanted.steps)
            return zf_fail(e, ZF_USAGE, "steps", "it is 0; 1 or more is expected; `stop` ends a run");
    }
    return ZF_OK;
}

enum zf_status zf_changes_make(struct zf_changes *out, const struct zf_options *now, const char *const *words, size_t count,
                               const struct zf_change_place *place, struct zf_err *e)
{
    *out = (struct zf_changes){0};
    struct zf_err_list errors = {0};
    ZF_TRY(zf_options_copy(&out->wanted, now, e));
    ZF_TRY(set_all(out, now, words, count, place, e));
    ZF_TRY(list_changes(out, now, place, e));
    if (out->count) {
        zf_options_validate(&out->wanted, false, &errors);
        zf_policy_check(&out->wanted, &errors);
    }
    enum zf_status s = zf_err_list_status(&errors);
    if (errors.count) *e = errors.list[0];
    zf_err_list_free(&errors);
    if (!s) questions(out, now, place);
    return s;
}

enum zf_status zf_changes_between(struct zf_changes *out, const struct zf_options *now, const struct zf_options *wanted,
                                  const struct zf_change_place *place, struct zf_err *e)
{
    *out = (struct zf_changes){0};
    ZF_TRY(zf_options_copy(&out->wanted, wanted, e));
    return list_changes(out, now, place, e);
}

void zf_changes_free(struct zf_changes *c)
{
    for (size_t i = 0; c->list && i < c->count; i++) {
        free(c->list[i].before);
        free(c->list[i].after);
    }
    free(c->list);
    zf_options_free(&c->wanted);
    *c = (struct zf_changes){0};
}

/* Is the option looked at under the strategy and rule of `o`? The others are kept and count when these change. */
static bool used(const struct zf_options *o, enum zf_option_id id)
{
    bool halves = o->strategy == ZF_STRATEGY_ZENFLOW || o->strategy == ZF_STRATEGY_ZENFLOW_SYNC || o->strategy == ZF_STRATEGY_SELECTED_ONLY;
    bool cpu = halves && o->strategy != ZF_STRATEGY_SELECTED_ONLY;
    switch (id) {
    case ZF_OPT_topk_ratio:
    case ZF_OPT_update_interval:
    case ZF_OPT_select_interval:
    case ZF_OPT_score: return halves;
    case ZF_OPT_cpu_update: return cpu;
    case ZF_OPT_cpu_learning_rate: return cpu && o->cpu_update == ZF_CPU_UPDATE_MEAN;
    case ZF_OPT_accumulate_on: return cpu && o->cpu_update == ZF_CPU_UPDATE_MEAN;
    case ZF_OPT_swap: return o->strategy == ZF_STRATEGY_ZENFLOW;
    case ZF_OPT_optimistic: return o->strategy == ZF_STRATEGY_ZENFLOW && o->swap == ZF_SWAP_STAGGERED;
    case ZF_OPT_max_update_interval: return halves && !o->update_interval;
    default: return true;
    }
}

static bool inside(double ratio)
{
    return ratio > 0 && ratio < 1;
}

/* What "from step N" means for this option. */
static const char *meaning(const struct zf_changes *c, const struct zf_options *now, enum zf_option_id id)
{
    static const char drains[] = "what is pending is applied first";
    if (!used(&c->wanted, id)) return "kept: it counts when strategy, swap and cpu_update use it";
    switch (id) {
    case ZF_OPT_topk_ratio:
        return inside(now->topk_ratio) && inside(c->wanted.topk_ratio) ? "each matrix at its next window start" : drains;
    case ZF_OPT_score: return "from the next selection on";
    case ZF_OPT_cpu_learning_rate: return "for windows that end from then on";
    case ZF_OPT_strategy:
    case ZF_OPT_update_interval:
    case ZF_OPT_swap:
    case ZF_OPT_cpu_update:
    case ZF_OPT_accumulate_on:
    case ZF_OPT_bus_dtype: return drains;
    default: return NULL;
    }
}

bool zf_schedule_leaves(const struct zf_options *o, uint64_t step, uint64_t steps, char *text, size_t room)
{
    const uint64_t end = (uint64_t)o->schedule_steps, first = (end > step ? end : step) + 1, last = o->steps ? (uint64_t)o->steps : steps;
    if (!end || o->schedule == ZF_SCHEDULE_CONSTANT || o->min_learning_rate > 0 || last < first) return false;
    char which[64];
    if (first == last)
        snprintf(which, sizeof which, "step %" PRIu64 " has", last);
    else
        snprintf(which, sizeof which, "steps %" PRIu64 " to %" PRIu64 " have", first, last);
    snprintf(text, room,
             "%s learning rate 0 (min_learning_rate), as the schedule %s at step %" PRIu64 "; set schedule_steps %" PRIu64 " too", which,
             step < end ? "ends" : "ended", end, last);
    return true;
}

/* Changes after which it may be so. */
static bool about_its_end(const struct zf_changes *c)
{
    static const enum zf_option_id ids[] = {ZF_OPT_steps, ZF_OPT_schedule_steps, ZF_OPT_min_learning_rate};
    for (size_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < sizeof ids / sizeof *ids; k++)
            if (c->list[i].id == ids[k]) return true;
    return false;
}

static bool about_rate(enum zf_option_id id)
{
    return id == ZF_OPT_learning_rate || id == ZF_OPT_min_learning_rate || id == ZF_OPT_schedule_steps;
}

static void put_note(FILE *to, const struct zf_changes *c, const struct zf_options *now, enum zf_option_id id,
                     const struct zf_change_place *place)
{
    uint64_t next = place->step + 1;
    const char *text = meaning(c, now, id);
    if (about_rate(id) && place->rate)
        fprintf(to, " (lr(%" PRIu64 ") %.4g -> %.4g)", next, place->rate(place->ctx, now, next), place->rate(place->ctx, &c->wanted, next));
    if (text) fprintf(to, " (%s)", text);
}

char *zf_changes_text(const struct zf_changes *c, const struct zf_options *now, const char *const *words, size_t count,
                      const struct zf_change_place *place)
{
    char *text = NULL;
    size_t size, lines = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    for (size_t i = 0; i < c->count; i++) {
        const struct zf_change *one = &c->list[i];
        fprintf(to, "%s%s %s -> %s, from step %" PRIu64, lines++ ? "\n" : "", zf_option_table[one->id].name, one->before, one->after,
                place->step + 1);
        if (!place->bare) put_note(to, c, now, one->id, place);
    }
    for (size_t i = 0; i + 1 < count; i += 2) {
        enum zf_option_id id = zf_option_id(zf_option_find(words[i]));
        bool changed = false;
        for (size_t k = 0; k < c->count; k++) changed |= c->list[k].id == id;
        char *value = changed ? NULL : text_of(now, id, place);
        if (value) fprintf(to, "%s%s is %s already", lines++ ? "\n" : "", zf_option_table[id].name, value);
        free(value);
    }
    char left[256];
    if (about_its_end(c) && zf_schedule_leaves(&c->wanted, place->step, place->steps, left, sizeof left))
        fprintf(to, "%s%s", lines ? "\n" : "", left);
    bool failed = ferror(to);
    if (!fclose(to) && !failed) return text;
    free(text);
    return NULL;
}

char *zf_changes_command(const struct zf_changes *c, bool back)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    fputs("set!", to);
    for (size_t i = 0; i < c->count; i++) {
        const char *value = back ? c->list[i].before : c->list[i].after;
        bool quote = strchr(value, ' ') && value[0] != '"'; /* a value text has quotes of its own where it needs them; a blank does here */
        fprintf(to, " %s ", zf_option_table[c->list[i].id].name);
        if (!quote) {
            fputs(value, to);
            continue;
        }
        putc('"', to);
        for (; *value; value++) fprintf(to, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
        putc('"', to);
    }
    bool failed = ferror(to);
    if (!fclose(to) && !failed) return text;
    free(text);
    return NULL;
}
