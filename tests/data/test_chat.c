/* Chat templates: parts, turned back into text, are what transformers renders, and the trained spans are the answers
 * (tests/golden/chat_rows.py); special tokens are the template's, never those of a content; what is not understood is refused in words. */
#include "support.h"

#include "core/base/json.h"
#include "core/data/chat_impl.h"
#include "core/tokenizer/text.h"

/* A tokenizer that has nothing but special tokens; ids from 1, in the order of the list. */
static struct zf_tokenizer *tokenizer(const json_t *tokens, const char *bos, const char *eos)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    json_t *added = json_array(), *one;
    size_t i;
    json_array_foreach(tokens, i, one)
        json_array_append_new(added, json_pack("{sisOsbsbsbsbsb}", "id", (int)i + 1, "content", one, "special", 1, "single_word", 0,
                                               "lstrip", 0, "rstrip", 0, "normalized", 0));
    json_t *file = json_pack("{soso}", "added_tokens", added, "model", json_pack("{sss{si}s[]}", "type", "BPE", "vocab", "a", 0, "merges"));
    json_t *config = json_pack("{ss*ss*}", "bos_token", bos, "eos_token", eos);
    assert_true(file && config && !json_dump_file(file, in_folder("tokenizer.json"), 0));
    assert_int_equal(json_dump_file(config, in_folder("tokenizer_config.json"), 0), 0);
    json_decref(file);
    json_decref(config);
    if (zf_tokenizer_open(&t, folder, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    return t;
}

static struct zf_tokenizer *small(void)
{
    json_t *tokens = json_pack("[sssss]", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|eot_id|>");
    struct zf_tokenizer *t = tokenizer(tokens, "<s>", "</s>");
    json_decref(tokens);
    return t;
}

static json_t *golden(void)
{
    char path[1024];
    struct zf_err e = {0};
    json_t *j;
    snprintf(path, sizeof path, "%s/tests/golden/chat_rows.json", getenv("ZF_SOURCE") ? getenv("ZF_SOURCE") : ".");
    if (zf_json_file(&j, path, 8 << 20, &e) != ZF_OK) fail_msg("%s: %s", e.where, e.message);
    return j;
}

/* Parts as a list of [text, trained], ids as the texts of `tokens`; the rules that hold for all of them. */
static json_t *spans(const struct zf_parts *p, const json_t *tokens)
{
    json_t *all = json_array(), *token;
    struct zf_text run = {0};
    struct zf_err e = {0};
    size_t k;
    for (size_t i = 0; i < p->count; i++) {
        const struct zf_part *part = &p->list[i];
        const char *text = part->text;
        size_t size = part->size;
        if (part->id >= 0) {
            text = json_string_value(json_array_get(tokens, (size_t)part->id - 1));
            assert_non_null(text);
            size = strlen(text);
            assert_false(part->content);
        } else {
            assert_true(size > 0);
            assert_false(part->specials && part->content);
            json_array_foreach(tokens, k, token) if (!part->content && !part->specials)
                assert_null(memmem(text, size, json_string_value(token), json_string_length(token)));
        }
        assert_int_equal(zf_text_add(&run, text, size, &e), ZF_OK);
        if (i + 1 < p->count && p->list[i + 1].trained == part->trained) continue;
        json_array_append_new(all, json_pack("[s%b]", run.data, run.size, part->trained));
        run.size = 0;
    }
    free(run.data);
    return all;
}

/* "role", "content", ... up to NULL. */
static size_t messages(struct zf_message *to, const char *const *list)
{
    size_t n = 0;
    for (; list[2 * n]; n++) to[n] = (struct zf_message){list[2 * n], list[2 * n + 1], strlen(list[2 * n + 1]), false};
    return n;
}

static void compare(const json_t *expected, const struct zf_parts *p, const json_t *tokens, const char *what)
{
    json_t *got = spans(p, tokens);
    if (!json_equal(got, (json_t *)expected)) {
        char *a = json_dumps(expected, 0), *b = json_dumps(got, 0);
        fail_msg("%s\nexpected %s\ngot      %s", what, a, b);
    }
    json_decref(got);
}

static enum zf_chat_kind kind_of(const char *name)
{
    static const char *const names[] = {"auto", "chatml", "llama2", "llama3", "plain", "none"};
    for (int i = 0; name && i < 6; i++)
        if (!strcmp(names[i], name)) return (enum zf_chat_kind)i;
    return ZF_CHAT_AUTO;
}

/* All rows of one template of the golden file. `text`: the template itself; NULL: chosen by name. */
static size_t check_rows(const json_t *rows, const char *name, const json_t *entry, const char *text)
{
    struct zf_err e = {0};
    struct zf_parts parts = {0};
    struct zf_chat *c;
    const json_t *tokens = json_object_get(entry, "tokens"), *row, *one;
    size_t i, k, n = 0;
    struct zf_tokenizer *t =
        tokenizer(tokens, json_string_value(json_object_get(entry, "bos")), json_string_value(json_object_get(entry, "eos")));
    if (text) save_text("chat_template.jinja", text);
    if (zf_chat_open(&c, kind_of(json_string_value(json_object_get(entry, "name"))), folder, t, &e) != ZF_OK)
        fail_msg("%s: %s: %s", name, e.where, e.message);
    if (text) assert_int_equal(remove(in_folder("chat_template.jinja")), 0);
    assert_non_null(c);
    assert_null(strchr(zf_chat_describe(c), '\n'));
    json_array_foreach(rows, i, row)
    {
        struct zf_message list[16];
        if (strcmp(json_string_value(json_object_get(row, "template")), name)) continue;
        json_array_foreach(json_object_get(row, "messages"), k, one)
        {
            const json_t *content = json_array_get(one, 1);
            list[k] = (struct zf_message){json_string_value(json_array_get(one, 0)), json_string_value(content),
                                          json_string_length(content), false};
        }
        zf_parts_clear(&parts);
        if (zf_chat_render(c, list, k, false, &parts, &e) != ZF_OK) fail_msg("%s: row %zu: %s", name, i, e.message);
        compare(json_object_get(row, "spans"), &parts, tokens, name);
        n++;
    }
    assert_true(n > 10);
    zf_chat_close(c);
    zf_parts_free(&parts);
    zf_tokenizer_close(t);
    return n;
}

static void test_golden(void **state)
{
    (void)state;
    json_t *all = golden(), *entry;
    const char *name;
    size_t n = 0;
    json_object_foreach(json_object_get(all, "templates"), name, entry)
    {
        if (json_object_get(entry, "folder")) continue;
        n += check_rows(json_object_get(all, "rows"), name, entry, json_string_value(json_object_get(entry, "template")));
    }
    assert_true(n > 150);
    json_decref(all);
}

static void test_golden_shared(void **state)
{
    (void)state;
    json_t *all = golden(), *entry;
    const char *name;
    size_t n = 0;
    json_object_foreach(json_object_get(all, "templates"), name, entry)
    {
        struct zf_err e = {0};
        json_t *config;
        char path[256];
        const char *from = json_string_value(json_object_get(entry, "folder"));
        if (!from) continue;
        snprintf(path, sizeof path, "data/tokenizers/%s/tokenizer_config.json", from);
        if (!shared_path(path)) skip();
        assert_int_equal(zf_json_file(&config, shared_path(path), 1 << 20, &e), ZF_OK);
        n += check_rows(json_object_get(all, "rows"), name, entry, json_string_value(json_object_get(config, "chat_template")));
        json_decref(config);
    }
    assert_true(n > 30);
    json_decref(all);
}

static void test_phi3_refused(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_chat *c;
    if (!shared_path("data/tokenizers/phi3/tokenizer_config.json")) skip();
    char path[1024];
    snprintf(path, sizeof path, "%s/data/tokenizers/phi3", getenv("ZF_SHARED"));
    struct zf_tokenizer *t = small();
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_AUTO, path, t, &e), ZF_USAGE);
    assert_null(c);
    assert_non_null(strstr(e.where, "phi3/tokenizer_config.json"));
    assert_non_null(strstr(e.message, "chat_template = chatml, llama2, llama3, plain or none"));
    assert_non_null(strstr(e.message, "`text` field"));
    assert_non_null(strstr(e.message, "'<|' + message['role'] + '|>'"));
    zf_tokenizer_close(t);
}

#define TURN "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
#define CHATML "{% for message in messages %}" TURN "{% endfor %}"

static enum zf_status recognise(const char *text, struct zf_chat_found *found, struct zf_arena *a, struct zf_err *e)
{
    *e = (struct zf_err){0};
    return zf_chat_recognise(found, a, text, strlen(text), "f", e);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "no template at all",
        /* other families */
        "{{ bos_token }}{% for message in messages %}<start_of_turn>{{ message['role'] }}\n{{ message['content'] }}<end_of_turn>\n{% "
        "endfor %}",
        "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
        "{{ message['content'] + eos_token }}{% endif %}{% endfor %}",
        "{% for message in messages %}<|im_start|>{{ message.role }}<|im_sep|>{{ message.content }}<|im_end|>{% endfor %}",
        /* known markers, but something else is done with them */
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']}}"
        "{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}",
        "{% for message in messages[1:] %}" TURN "{% endfor %}",
        "{% for message in messages %}{% if message.role != 'system' %}" TURN "{% endif %}{% endfor %}",
        "{% for message in messages %}{{'<|im_start|>' + message['content'] + '\\n' + message['role'] + '<|im_end|>' + '\\n'}}{% endfor %}",
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | upper + '<|im_end|>\\n'}}{% endfor "
        "%}",
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}{% endfor %}",
        "{% for message in messages %}" TURN "\n{% endfor %}",
        "{% for message in messages %}" TURN "{% endfor %}{{ messages[0]['content'] }}",
        CHATML CHATML "{{ x }}",
        "{% macro f() %}<|im_start|>{% endmacro %}" CHATML,
        /* the default system message is there, but not when it is added */
        "{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}" CHATML,
        /* broken */
        "{% for message in messages %}" TURN,
        CHATML "{% endif %}",
        "{% elif x %}" CHATML,
        "{{ '<|im_start|>",
        "{{ '<|im_start|>\\u0041' }}",
        "{# <|im_start|>",
        CHATML "{%",
        CHATML "{{",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct zf_arena a = {0};
        struct zf_chat_found found;
        struct zf_err e;
        if (recognise(texts[i], &found, &a, &e) != ZF_USAGE) fail_msg("taken: %s", texts[i]);
        assert_string_equal(e.where, "f");
        assert_non_null(strstr(e.message, "set chat_template = "));
        assert_null(strchr(e.message, '\n'));
        zf_arena_free(&a);
    }
}

/* Spellings of the same. */
static void test_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tail, *system;
    } cases[] = {
        {CHATML, NULL, NULL},
        {CHATML "\n", NULL, NULL},
        {CHATML "\n\nend", "\nend", NULL},
        {CHATML "{{ '' }}x\n\n", "x\n", NULL},
        {CHATML "{% if add_generation_prompt %}{{ 'never' }}{% else %}always{% endif %}", "always", NULL},
        {"{#- a comment -#}\n{%- for message in messages -%}\n<|im_start|>{{- message[\"role\"] ~ \"\\n\" -}} {{ message.content "
         "}}<|im_end|>\r\n"
         "  {% endfor %}",
         NULL, NULL},
        {"{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
         "{{ \"<|im_start|>system\\nIt's \\\"me\\\"\\n<|im_end|>\\n\" }}{% endif %}" TURN "{% endfor %}",
         NULL, "It's \"me\"\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_arena a = {0};
        struct zf_chat_found found;
        struct zf_err e;
        enum zf_status s = recognise(cases[i].text, &found, &a, &e);
        if (s != ZF_OK) fail_msg("case %zu: %s", i, e.message);
        assert_int_equal(found.kind, ZF_CHAT_CHATML);
        if (cases[i].tail) assert_string_equal(found.tail, cases[i].tail);
        if (!cases[i].tail) assert_null(found.tail);
        if (cases[i].system) assert_string_equal(found.system, cases[i].system);
        if (!cases[i].system) assert_null(found.system);
        zf_arena_free(&a);
    }
}

static void render(const struct zf_chat *c, const struct zf_message *m, size_t n, bool all, struct zf_parts *p)
{
    struct zf_err e = {0};
    zf_parts_clear(p);
    if (zf_chat_render(c, m, n, all, p, &e) != ZF_OK) fail_msg("%s", e.message);
}

static void test_masks(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_chat *c;
    struct zf_parts p = {0};
    struct zf_message m[8];
    struct zf_tokenizer *t = small();
    json_t *tokens = json_pack("[sssss]", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<|eot_id|>");
    static const char *const list[] = {"user", "7?", "assistant", "7", "user", "8?", "assistant", "8", NULL};
    size_t n = messages(m, list);
    m[1].untrained = true;

    assert_int_equal(zf_chat_open(&c, ZF_CHAT_CHATML, NULL, t, &e), ZF_OK);
    render(c, m, n, false, &p);
    json_t *want = json_pack("[[sb][sb][sb]]",
                             "<|im_start|>user\n7?<|im_end|>\n<|im_start|>assistant\n7<|im_end|>\n"
                             "<|im_start|>user\n8?<|im_end|>\n<|im_start|>assistant\n",
                             0, "8<|im_end|>", 1, "\n", 0);
    compare(want, &p, tokens, "an untrained turn");
    json_decref(want);
    zf_chat_close(c);

    assert_int_equal(zf_chat_open(&c, ZF_CHAT_LLAMA2, NULL, t, &e), ZF_OK);
    render(c, m, n, true, &p);
    want = json_pack("[[sb][sb][sb][sb]]", "<s>", 0, "[INST] 7? [/INST] 7 </s>", 1, "<s>", 0, "[INST] 8? [/INST] 8 </s>", 1);
    compare(want, &p, tokens, "all but BOS");
    json_decref(want);
    zf_chat_close(c);

    /* A content that spells special tokens is text, and marked as content. */
    static const char *const spelled[] = {"user", "<|im_end|>", "<s>", "<|im_start|>", NULL};
    n = messages(m, spelled);
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_CHATML, NULL, t, &e), ZF_OK);
    render(c, m, n, false, &p);
    size_t found = 0, contents = 0;
    for (size_t i = 0; i < p.count; i++) {
        assert_int_equal(p.list[i].id, -1);
        found += p.list[i].specials ? zf_tokenizer_count_added(t, p.list[i].text, p.list[i].size) : 0;
        contents += p.list[i].content;
    }
    assert_int_equal(found, 4);
    assert_int_equal(contents, 3); /* the role of the second is the record's own, too */
    render(c, m, 0, false, &p);
    assert_int_equal(p.count, 0);
    zf_chat_close(c);
    zf_parts_free(&p);
    json_decref(tokens);
    zf_tokenizer_close(t);
}

static void test_roles(void **state)
{
    (void)state;
    static const struct {
        enum zf_chat_kind kind;
        const char *const list[8];
        const char *says;
    } cases[] = {
        {ZF_CHAT_LLAMA2, {"assistant", "a"}, "message 1 has the role \"assistant\""},
        {ZF_CHAT_LLAMA2, {"user", "a", "user", "b"}, "message 2 has the role \"user\""},
        {ZF_CHAT_LLAMA2, {"system", "s", "user", "a", "assistant", "b"}, NULL},
        {ZF_CHAT_LLAMA2, {"user", "a", "system", "b"}, "message 2 has the role \"system\""},
        {ZF_CHAT_LLAMA2, {"system", "s"}, "only a system message"},
        {ZF_CHAT_PLAIN, {"user", "a", "nar\nrator", "b"}, "message 2 has the role \"nar\\nrator\""},
        {ZF_CHAT_CHATML, {"", "a"}, "message 1 has the role \"\""},
        {ZF_CHAT_NONE, {"", "a"}, NULL},
        {ZF_CHAT_CHATML, {"narrator", "a"}, NULL},
    };
    struct zf_tokenizer *t = small();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zf_err e = {0};
        struct zf_chat *c;
        struct zf_parts p = {0};
        struct zf_message m[4];
        size_t n = 0;
        for (; n < 4 && cases[i].list[2 * n]; n++)
            m[n] = (struct zf_message){cases[i].list[2 * n], cases[i].list[2 * n + 1], strlen(cases[i].list[2 * n + 1]), false};
        assert_int_equal(zf_chat_open(&c, cases[i].kind, NULL, t, &e), ZF_OK);
        enum zf_status s = zf_chat_render(c, m, n, false, &p, &e);
        assert_int_equal(s, cases[i].says ? ZF_FORMAT : ZF_OK);
        if (cases[i].says && !strstr(e.message, cases[i].says)) fail_msg("%s", e.message);
        assert_string_equal(e.where, "");
        zf_parts_free(&p);
        zf_chat_close(c);
    }
    zf_tokenizer_close(t);
}

/* A template that writes tool messages in its own way, or none but four roles, refuses the others. */
static void test_strict_roles(void **state)
{
    (void)state;
    json_t *all = golden();
    struct zf_tokenizer *t = small();
    static const char *const names[] = {"tool-aware", "headers-date"}, *const roles[] = {"narrator", "tool"};
    for (int i = 0; i < 2; i++) {
        struct zf_err e = {0};
        struct zf_chat *c;
        struct zf_parts p = {0};
        struct zf_message m = {roles[i], "x", 1, false};
        save_text("chat_template.jinja",
                  json_string_value(json_object_get(json_object_get(json_object_get(all, "templates"), names[i]), "template")));
        assert_int_equal(zf_chat_open(&c, ZF_CHAT_AUTO, folder, t, &e), ZF_OK);
        assert_int_equal(zf_chat_render(c, &m, 1, false, &p, &e), ZF_FORMAT);
        assert_non_null(strstr(e.message, roles[i]));
        zf_parts_free(&p);
        zf_chat_close(c);
    }
    remove(in_folder("chat_template.jinja"));
    zf_tokenizer_close(t);
    json_decref(all);
}

static enum zf_status open_config(const char *config, const struct zf_tokenizer *t, struct zf_chat **c, struct zf_err *e)
{
    *e = (struct zf_err){0};
    save_text("tokenizer_config.json", config);
    return zf_chat_open(c, ZF_CHAT_AUTO, folder, t, e);
}

static void test_places(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_chat *c;
    struct zf_tokenizer *t = small();
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_AUTO, NULL, t, &e), ZF_OK);
    assert_null(c);
    assert_int_equal(open_config("{}", t, &c, &e), ZF_OK);
    assert_null(c);
    assert_int_equal(open_config("{\"chat_template\": null}", t, &c, &e), ZF_OK);
    assert_null(c);
    assert_int_equal(open_config("{\"chat_template\": 5}", t, &c, &e), ZF_FORMAT);
    assert_non_null(strstr(e.where, "tokenizer_config.json"));
    assert_int_equal(open_config("{\"chat_template\": ", t, &c, &e), ZF_FORMAT);
    assert_int_equal(open_config("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}", t, &c, &e), ZF_USAGE);
    assert_non_null(strstr(e.message, "default"));
    assert_int_equal(
        open_config("{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"" CHATML
                    "\"}]}",
                    t, &c, &e),
        ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "chatml, recognised in tokenizer_config.json by <|im_start|>"));
    unsigned char hash[16];
    memcpy(hash, zf_chat_hash(c), 16);
    zf_chat_close(c);

    /* The file of its own wins; the same template is the same. */
    assert_int_equal(open_config("{\"chat_template\": \"unknown\"}", t, &c, &e), ZF_USAGE);
    save_text("chat_template.jinja", CHATML);
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_AUTO, folder, t, &e), ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "chat_template.jinja"));
    assert_memory_equal(hash, zf_chat_hash(c), 16);
    zf_chat_close(c);
    save_text("chat_template.jinja", CHATML "more");
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_AUTO, folder, t, &e), ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "it ends with \"more\""));
    assert_memory_not_equal(hash, zf_chat_hash(c), 16);
    zf_chat_close(c);
    remove(in_folder("chat_template.jinja"));

    /* Chosen by name: the folder's template does not matter, and markers that are no tokens are named. */
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_LLAMA3, folder, t, &e), ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "ordinary text: <|start_header_id|>, <|end_header_id|>"));
    assert_null(strstr(zf_chat_describe(c), "<|eot_id|>"));
    zf_chat_close(c);
    zf_tokenizer_close(t);

    /* A tokenizer without the special tokens: all is text, and nothing ends an answer. */
    struct zf_parts p = {0};
    struct zf_message m[2];
    static const char *const list[] = {"assistant", "a", NULL};
    assert_int_equal(zf_tokenizer_open(&t, "bytes", &e), ZF_OK);
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_CHATML, NULL, t, &e), ZF_OK);
    render(c, m, messages(m, list), false, &p);
    json_t *want = json_pack("[[sb][sb][sb]]", "<|im_start|>assistant\n", 0, "a<|im_end|>", 1, "\n", 0);
    compare(want, &p, NULL, "bytes");
    json_decref(want);
    zf_chat_close(c);
    zf_tokenizer_close(t);
    t = tokenizer(NULL, NULL, NULL);
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_PLAIN, NULL, t, &e), ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "no EOS, so nothing ends an answer"));
    zf_chat_close(c);
    assert_int_equal(zf_chat_open(&c, ZF_CHAT_LLAMA2, NULL, t, &e), ZF_OK);
    assert_non_null(strstr(zf_chat_describe(c), "no BOS"));
    zf_chat_close(c);
    zf_parts_free(&p);
    zf_tokenizer_close(t);
}

/* Texts that the list makes stay where they are, and a list can be used again. */
static void test_parts(void **state)
{
    (void)state;
    struct zf_parts p = {0};
    struct zf_err e = {0};
    for (int round = 0; round < 3; round++) {
        char *first = NULL, *text;
        for (size_t i = 0; i < 200; i++) {
            size_t size = i == 100 ? 3 << 20 : 1000;
            assert_int_equal(zf_parts_text(&p, size, &text, &e), ZF_OK);
            memset(text, (int)i, size);
            if (!i) first = text;
            struct zf_part part = {.text = text, .size = size, .id = -1};
            assert_int_equal(zf_parts_add(&p, &part, &e), ZF_OK);
        }
        struct zf_part nothing = {.id = -1};
        assert_int_equal(zf_parts_add(&p, &nothing, &e), ZF_OK);
        assert_int_equal(p.count, 200);
        for (size_t i = 0; i < 200; i++)
            for (size_t k = 0; k < 1000; k++) assert_int_equal((unsigned char)p.list[i].text[k], i);
        assert_ptr_equal(first, p.list[0].text);
        zf_parts_clear(&p);
        assert_int_equal(p.count, 0);
    }
    zf_parts_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_golden_shared), cmocka_unit_test(test_phi3_refused),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_spellings),     cmocka_unit_test(test_masks),
        cmocka_unit_test(test_roles),   cmocka_unit_test(test_strict_roles),  cmocka_unit_test(test_places),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
