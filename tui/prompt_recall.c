/* See prompt_recall.h. readline's own history (8.2, by callbacks) frees lists for undo twice and reads lines that were freed, where
 * somebody edits a line of it, leaves it, and searches; so readline has none, and the keys that would use it are ours, whoever bound them.
 * The list of lines is prompt_history.c's. */
#include "tui/prompt_recall.h"

#include "tui/prompt_history.h"

#include <stdlib.h>
#include <string.h>

static struct {
    size_t at;      /* in the history; its count: at the line that is being typed */
    char *typed;    /* that line, while another is shown */
    int begun;      /* bytes that lines have to begin with */
    size_t word_of; /* the line whose last word was inserted, */
    int word_at;    /* and where */
    struct search {
        bool on, back, failed;
        size_t size, from; /* from: where it began */
        int point;         /* and the cursor */
        char text[256];
    } search;
    char searched[256]; /* what was searched for last */
} p;

void zf_recall_reset(void)
{
    p.at = zf_prompt_history_count();
    p.search.on = false;
    free(p.typed);
    p.typed = NULL;
}

/* The line that is being typed is the one after the newest. */
static void show_entry(size_t i)
{
    size_t count = zf_prompt_history_count();
    if (p.at > count) p.at = count;
    if (i > count || i == p.at) return;
    if (p.at == count) {
        free(p.typed);
        p.typed = strdup(rl_line_buffer);
    }
    p.at = i;
    rl_replace_line(i < count ? zf_prompt_history_line(i) : p.typed ? p.typed : "", 1);
    rl_point = rl_end;
}

static int older(int count, int key)
{
    (void)key;
    size_t by = count > 0 ? (size_t)count : 0;
    show_entry(p.at > by ? p.at - by : 0);
    return 0;
}

static int newer(int count, int key)
{
    (void)key;
    size_t by = count > 0 ? (size_t)count : 0, last = zf_prompt_history_count();
    show_entry(by < last - (p.at < last ? p.at : last) ? p.at + by : last);
    return 0;
}

static int oldest(int count, int key)
{
    (void)count;
    (void)key;
    show_entry(0);
    return 0;
}

static int newest(int count, int key)
{
    (void)count;
    (void)key;
    show_entry(zf_prompt_history_count());
    return 0;
}

static int begun_older(int count, int key);
static int begun_newer(int count, int key);

/* The next line that begins as what was left of the cursor when this began. */
static int begun_as(bool back)
{
    if (rl_last_func != begun_older && rl_last_func != begun_newer) p.begun = rl_point;
    if (p.begun > rl_end) p.begun = rl_end;
    size_t found = zf_prompt_history_find(rl_line_buffer, (size_t)p.begun, back ? p.at - 1 : p.at + 1, back, true);
    if (found == SIZE_MAX && !back) found = zf_prompt_history_count();
    int begun = p.begun;
    if (found != SIZE_MAX) show_entry(found);
    rl_point = begun < rl_end ? begun : rl_end;
    return 0;
}

static int begun_older(int count, int key)
{
    (void)count;
    (void)key;
    return begun_as(true);
}

static int begun_newer(int count, int key)
{
    (void)count;
    (void)key;
    return begun_as(false);
}

/* The last word of the line before, again: of the one before that. */
/* Where the last word of a line begins: what stands in quotes is one, as it is for the parser of commands. */
static const char *begin_of_last_word(const char *line)
{
    const char *word = line;
    for (const char *s = line + strspn(line, " "); *s; s += strspn(s, " ")) {
        word = s;
        if (*s == '"')
            for (s++; *s && *s != '"'; s++) s += *s == '\\' && s[1];
        s += strcspn(s, " ");
    }
    return word;
}

static int last_word(int count, int key)
{
    (void)count;
    (void)key;
    if (rl_last_func != last_word) p.word_of = zf_prompt_history_count(), p.word_at = rl_point;
    if (!p.word_of) return 0;
    const char *word = begin_of_last_word(zf_prompt_history_line(--p.word_of));
    if (rl_last_func == last_word && p.word_at <= rl_point) {
        rl_delete_text(p.word_at, rl_point);
        rl_point = p.word_at;
    }
    rl_insert_text(word);
    return 0;
}

static int search(bool back)
{
    p.search = (struct search){.on = true, .back = back, .point = rl_point, .from = p.at};
    return 0;
}

static int search_older(int count, int key)
{
    (void)count;
    (void)key;
    return search(true);
}

static int search_newer(int count, int key)
{
    (void)count;
    (void)key;
    return search(false);
}

static void find(size_t from)
{
    size_t found = zf_prompt_history_find(p.search.text, p.search.size, from, p.search.back, false);
    p.search.failed = found == SIZE_MAX;
    if (p.search.failed) return;
    show_entry(found);
    const char *match = memmem(rl_line_buffer, (size_t)rl_end, p.search.text, p.search.size);
    if (match) rl_point = (int)(match - rl_line_buffer);
}

void zf_recall_add(const char *text, size_t size)
{
    if (p.search.size + size >= sizeof p.search.text) return;
    memcpy(p.search.text + p.search.size, text, size);
    p.search.size += size;
    p.search.text[p.search.size] = 0;
    find(p.at < zf_prompt_history_count() || !p.search.back ? p.at : p.at - 1);
}

static void search_back_to_start(void)
{
    show_entry(p.search.from);
    rl_point = p.search.point < rl_end ? p.search.point : rl_end;
}

static void search_rubout(void)
{
    while (p.search.size && (p.search.text[--p.search.size] & 0xc0) == 0x80) continue;
    p.search.text[p.search.size] = 0;
    search_back_to_start();
    p.search.failed = false;
    if (p.search.size) find(p.search.back ? zf_prompt_history_count() - 1 : p.at);
}

bool zf_recall_is_text(const struct zf_key_event *e, bool utf8)
{
    return e->key >= ' ' && e->key < 0x110000 && e->key != 0xfffd && !(e->key >= 0x7f && e->key < 0xa0) && (utf8 || e->key < 0x80);
}

bool zf_recall_key(const struct zf_key_event *e, bool utf8)
{
    if (!p.search.on) return false;
    int type = ISFUNC;
    char sequence[8] = "";
    if (e->size < sizeof sequence) memcpy(sequence, e->bytes, e->size);
    rl_command_func_t *bound = rl_function_of_keyseq_len(sequence, e->size < sizeof sequence ? e->size : 0, NULL, &type);
    if (type == ISFUNC && (bound == search_older || bound == search_newer) && !zf_recall_is_text(e, utf8)) {
        p.search.back = bound == search_older;
        if (!p.search.size)
            zf_recall_add(p.searched, strlen(p.searched));
        else
            find(p.search.back ? p.at - 1 : p.at + 1);
        return true;
    }
    if (zf_recall_is_text(e, utf8)) return zf_recall_add((const char *)e->bytes, e->size), true;
    if (e->key == 127) return search_rubout(), true;
    if (p.search.size) memcpy(p.searched, p.search.text, p.search.size + 1);
    p.search.on = false;
    if (type == ISFUNC && bound == rl_abort) return search_back_to_start(), true;
    return e->key == ZF_KEY_ESCAPE;
}

static int nothing(int count, int key)
{
    (void)count;
    (void)key;
    return 0;
}

/* What keys do, whoever bound them: readline's own history is not used (see prompt_history.c), and neither are its macros: 8.2 follows a
 * null pointer where one has a sequence of keys in it that does nothing. */
static const struct {
    rl_command_func_t *from, *to;
} replaced[] = {{rl_get_previous_history, older},
                {rl_get_next_history, newer},
                {rl_beginning_of_history, oldest},
                {rl_end_of_history, newest},
                {rl_reverse_search_history, search_older},
                {rl_forward_search_history, search_newer},
                {rl_noninc_reverse_search, search_older},
                {rl_noninc_forward_search, search_newer},
                {rl_noninc_reverse_search_again, search_older},
                {rl_noninc_forward_search_again, search_newer},
                {rl_history_search_backward, begun_older},
                {rl_history_search_forward, begun_newer},
                {rl_history_substr_search_backward, search_older},
                {rl_history_substr_search_forward, search_newer},
                {rl_vi_search, search_older},
                {rl_vi_search_again, search_older},
                {rl_vi_fetch_history, oldest},
                {rl_fetch_history, nothing},
                {rl_yank_last_arg, last_word},
                {rl_vi_yank_arg, last_word},
                {rl_yank_nth_arg, last_word},
                {rl_operate_and_get_next, rl_newline},
                {rl_start_kbd_macro, nothing},
                {rl_end_kbd_macro, nothing},
                {rl_call_last_kbd_macro, nothing},
                {rl_re_read_init_file, nothing}};

rl_command_func_t *zf_recall_instead(rl_command_func_t *bound)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (replaced[i].from == bound) return replaced[i].to;
    return bound;
}

bool zf_recall_searches(void)
{
    return p.search.on;
}

bool zf_recall_label(char *to, size_t room)
{
    if (!p.search.on) return false;
    snprintf(to, room, "(%s%s-search)`%s': ", p.search.failed ? "failed " : "", p.search.back ? "reverse-i" : "i", p.search.text);
    return true;
}
