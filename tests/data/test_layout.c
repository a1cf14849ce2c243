/* Records of every shape -> parts: what is found, what is shown, what is refused and in which words. */
#include "support.h"

#include "core/data/layout_impl.h"

static struct zf_tokenizer *bytes;

/* A record, from a line of JSON, or of a table whose header is `header`. */
struct source {
    struct zf_record record;
    struct zf_columns columns;
    const char *names[8], *text;
    char header[256];
};

static void make_source(struct source *s, const char *header, const char *text)
{
    *s = (struct source){.text = text};
    s->record = (struct zf_record){.line = 7, .column = 1, .size = strlen(text), .first = true, .last = true};
    if (!header) return;
    snprintf(s->header, sizeof s->header, "%s", header);
    char *rest = s->header;
    for (char *name; (name = strsep(&rest, "\t,"));) s->names[s->columns.count++] = name;
    s->columns.names = s->names;
    s->record.columns = &s->columns;
}

static struct zf_layout_options defaults(void)
{
    return (struct zf_layout_options){.tokenizer = bytes, .format = ZF_DATA_JSONL, .add_eos = true, .eos = 256};
}

static char shown[4096];

/* Parts as text: T trained, s special tokens recognised, c content, F in front; 'text' or <id>. */
static const char *show_parts(const struct zf_parts *p)
{
    size_t n = 0;
    shown[0] = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct zf_part *a = &p->list[i];
        n += (size_t)snprintf(shown + n, sizeof shown - n, "%s%s%s%s%s", i ? " " : "", a->trained ? "T" : "", a->specials ? "s" : "",
                              a->content ? "c" : "", a->front ? "F" : "");
        if (a->id >= 0)
            n += (size_t)snprintf(shown + n, sizeof shown - n, "<%d>", a->id);
        else
            n += (size_t)snprintf(shown + n, sizeof shown - n, "'%.*s'", (int)a->size, a->text);
        assert_true(n < sizeof shown);
    }
    return shown;
}

static struct zf_err e;
static char described[1024];
static int chosen;

/* The layout found from `first`, applied to `record`; with choice, or -1. On failure the message is shown. */
static const char *render(const struct zf_layout_options *o, const char *header, const char *first, const char *record, int choice)
{
    struct source a, b;
    struct zf_layout *l;
    struct zf_parts parts = {0};
    make_source(&a, header, first);
    make_source(&b, header, record);
    enum zf_status s = zf_layout_open(&l, o, &a.record, a.text, "data.x", &e);
    if (s != ZF_OK) {
        assert_null(l);
        snprintf(shown, sizeof shown, "%d %s: %s", s, e.where, e.message);
        return shown;
    }
    snprintf(described, sizeof described, "%s", zf_layout_describe(l));
    s = zf_layout_render(l, &b.record, b.text, "data.x", choice, &parts, &chosen, &e);
    if (s != ZF_OK)
        snprintf(shown, sizeof shown, "%d %s: %s", s, e.where, e.message);
    else
        show_parts(&parts);
    zf_parts_free(&parts);
    zf_layout_close(l);
    return shown;
}

static const char *one(const struct zf_layout_options *o, const char *record)
{
    return render(o, NULL, record, record, -1);
}

static void assert_has(const char *text, const char *piece)
{
    if (!strstr(text, piece)) fail_msg("`%s` is not in: %s", piece, text);
}

static void test_prompt_and_response(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    assert_string_equal(one(&o, "{\"prompt\": \"one \", \"completion\": \"two\", \"id\": 4}"), "c'one ' Tc'two' T<256>");
    assert_string_equal(described, "prompt from `prompt`, response from `completion`; <|endoftext|> at the end; not used: `id`");
    assert_string_equal(one(&o, "{\"response\": \"two\", \"prompt\": \"one\"}"), "c'one' Tc'two' T<256>");
    assert_string_equal(one(&o, "{\"chosen\": \"two\", \"prompt\": \"one\", \"rejected\": \"x\"}"), "c'one' Tc'two' T<256>");
    o.add_eos = false;
    assert_string_equal(one(&o, "{\"prompt\": \"a\", \"completion\": \"b\"}"), "c'a' Tc'b'");
    o.train_all = true;
    assert_string_equal(one(&o, "{\"prompt\": \"a\", \"completion\": \"b\"}"), "Tc'a' Tc'b'");
    assert_has(described, "everything is trained");
}

static void test_values_of_columns(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    o.prompt = "{a}|{b}|{c}|{d}|{e}";
    o.response = "{f}";
    assert_string_equal(one(&o,
                            "{\"x\": {\"a\": [1, \"}\\\"\", {\"f\": 3}], \"b\": 2}, \"a\": 1.50, \"b\": -1e+05, \"c\": true, \"d\": null, "
                            "\"e\":\t123456789012345678901234567890 , \"f\": \"caf\\u00e9\"}"),
                        "c'1.50' s'|' c'-1e+05' s'|' c'true' s'|' s'|' c'123456789012345678901234567890' Tc'caf\xC3\xA9' T<256>");
}

static void test_nothing_missing_null(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    const char *first = "{\"prompt\": \"a\", \"completion\": \"b\"}";
    assert_string_equal(render(&o, NULL, first, "{\"prompt\": \"\", \"completion\": \"\"}", -1), "");
    assert_string_equal(render(&o, NULL, first, "{\"prompt\": null, \"completion\": null}", -1), "");
    assert_string_equal(render(&o, NULL, first, "{\"prompt\": null, \"completion\": \"b\"}", -1), "Tc'b' T<256>");
    assert_string_equal(render(&o, NULL, first, "{\"prompt\": \"a\", \"completion\": \"\"}", -1), "c'a' T<256>");
    assert_has(render(&o, NULL, first, "{\"prompt\": \"a\", \"completion\": null}", -1), "4 : its `completion` is null");
    assert_has(render(&o, NULL, first, "{\"prompt\": \"a\"}", -1), "4 : it has no `completion`");
    assert_has(render(&o, NULL, first, "{\"completion\": \"a\"}", -1), "4 : it has no `prompt`");
    assert_has(render(&o, NULL, first, "{\"prompt\": [\"a\"], \"completion\": \"x\"}", -1), "4 : `prompt` holds a list");
    o.prompt = "Q: {prompt}\n";
    o.response = "A: {completion}";
    assert_string_equal(render(&o, NULL, first, "{\"prompt\": \"\", \"completion\": null}", -1), "");
    o.response = "{completion}{more}";
    assert_string_equal(one(&o, "{\"prompt\": \"a\", \"completion\": null, \"more\": \"b\"}"), "s'Q: ' c'a' s'\n' Tc'b' T<256>");
}

static void test_broken_records(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    const char *good = "{\"prompt\": \"a\", \"completion\": \"b\"}";
    assert_has(one(&o, "[{\"prompt\": 1}]"), "4 : this looks like a JSON array");
    assert_has(one(&o, "["), "set format = json");
    assert_has(one(&o, "\"text\""), "4 : this is no JSON object");
    assert_has(one(&o, "12"), "no JSON object");
    assert_has(one(&o, ""), "no JSON object");
    assert_has(one(&o, "{}"), "4 : the record has no columns");
    assert_has(render(&o, NULL, good, "{\"prompt\": \"a\", \"completion\" \"b\"}", -1), "4 data.x:7:");
    assert_has(render(&o, NULL, good, "{\"prompt\":\n \"a\",\n\"prompt\": \"b\"}", -1), "4 data.x:9:");
    assert_has(shown, "duplicate");
    assert_has(one(&o, "{\"prompt\": \"\\ud800\", \"completion\": \"\"}"), "4 data.x:7:");
}

static void test_unknown_columns(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    const char *record = "{\"sentence\": \"a\", \"label\": 1}";
    assert_has(one(&o, record), "2 data.x: its columns (`sentence`, `label`)");
    assert_has(shown, "{sentence}");
    o.prompt = "{sentance}";
    o.response = "{label}";
    assert_has(one(&o, record), "2 prompt: there is no column `sentance`");
    assert_has(shown, "`sentence`, `label`; the nearest is `sentence`");
    o.prompt = "{}";
    assert_has(one(&o, record), "2 prompt: there is no column ``");
    o.prompt = "{sentence";
    assert_has(one(&o, record), "2 prompt: the { at byte 1 is not closed");
    o.prompt = "a {sen{tence}";
    assert_has(one(&o, record), "the { at byte 3 is not closed");
    o.prompt = "sentence}";
    assert_has(one(&o, record), "2 prompt: the } at byte 9 closes nothing");
    o.prompt = "\xFF{sentence}";
    assert_has(one(&o, record), "2 prompt: its byte 1 is no UTF-8");
    o.prompt = "{{{sentence}}} {{}}";
    assert_string_equal(one(&o, record), "s'{' c'a' s'} {}' Tc'1' T<256>");
    o.prompt = "{sentence}";
    o.response = NULL;
    assert_has(one(&o, record), "2 prompt: there is a prompt and no response");
    o.train_all = true;
    assert_string_equal(one(&o, record), "Tc'a' T<256>");
    o.train_all = false;
    o.prompt = NULL;
    o.response = "{sentence}!";
    assert_string_equal(one(&o, record), "Tc'a' Ts'!' T<256>");
}

static void test_tables(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    o.format = ZF_DATA_TSV;
    o.prompt = "{sentence}=";
    o.response = "{label}";
    assert_string_equal(render(&o, "sentence\tlabel", "it 's \"good\t1", "bad\t0", -1), "c'bad' s'=' Tc'0' T<256>");
    assert_string_equal(described, "prompt \"{sentence}=\", response from `label`; <|endoftext|> at the end");
    o.format = ZF_DATA_CSV;
    assert_string_equal(render(&o, "label,sentence", "1,a", "\"0\",\"say \"\"no\"\", he\nsaid\"", -1),
                        "c'say \"no\", he\nsaid' s'=' Tc'0' T<256>");
    o.prompt = o.response = NULL;
    assert_string_equal(render(&o, "text,label", "a,b", "\"x\"\"y\",2", -1), "Ts'x\"y' T<256>");
    assert_string_equal(described, "text from `text`; <|endoftext|> at the end; not used: `label`");
    assert_has(render(&o, "messages,label", "a,b", "a,b", -1), "2 data.x: its columns (`messages`, `label`)");
}

static void test_text(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    assert_string_equal(one(&o, "{\"text\": \"a<|endoftext|>b\"}"), "Ts'a<|endoftext|>b' T<256>");
    assert_string_equal(one(&o, "{\"content\": \"a\"}"), "Ts'a' T<256>");
    assert_string_equal(one(&o, "{\"document\": \"a\", \"meta\": {}}"), "Ts'a' T<256>");
    assert_string_equal(render(&o, NULL, "{\"text\": \"a\"}", "{\"text\": null}", -1), "");
    assert_has(render(&o, NULL, "{\"text\": \"a\"}", "{\"txt\": \"b\"}", -1), "4 : it has no `text`");
    o.choices = &(struct zf_choice){"a", "b"};
    o.choice_count = 1;
    assert_has(one(&o, "{\"text\": \"a\"}"), "2 choices: ");
}

static void test_choices(void **state)
{
    (void)state;
    static const struct zf_choice choices[] = {{"0", "bad"}, {"1", "good"}};
    struct zf_layout_options o = defaults();
    o.choices = choices;
    o.choice_count = 2;
    o.prompt = "{s}:";
    o.response = " {label}.";
    const char *first = "{\"s\": \"a\", \"label\": 1}", *other = "{\"s\": \"b\", \"label\": \"7\"}";
    assert_string_equal(render(&o, NULL, first, first, -1), "c'a' s':' Ts' ' T'good' Ts'.' T<256>");
    assert_int_equal(chosen, 1);
    assert_has(described, "2 choices");
    assert_string_equal(render(&o, NULL, first, first, 0), "c'a' s':' Ts' ' T'bad' Ts'.' T<256>");
    assert_int_equal(chosen, 1);
    assert_string_equal(render(&o, NULL, first, other, -1), "c'b' s':' Ts' ' Tc'7' Ts'.' T<256>");
    assert_int_equal(chosen, -1);
    assert_string_equal(render(&o, NULL, first, other, 1), "c'b' s':' Ts' ' T'good' Ts'.' T<256>");
    assert_int_equal(chosen, -1);
    o.response = "{s}/{label}"; /* the column whose value is a choice */
    assert_string_equal(render(&o, NULL, first, "{\"s\": \"0\", \"label\": 0}", -1), "c'0' s':' Tc'0' Ts'/' T'bad' T<256>");
    o.response = "none";
    assert_has(one(&o, first), "2 choices: no column of the response takes them");
    o.prompt = o.response = NULL;
    assert_string_equal(one(&o, "{\"prompt\": \"p\", \"completion\": \"1\"}"), "c'p' T'good' T<256>");
    assert_string_equal(render(&o, NULL, "{\"prompt\": \"p\", \"completion\": \"1\"}", "{\"prompt\": \"p\", \"completion\": \"1 \"}", -1),
                        "c'p' Tc'1 ' T<256>");
    assert_int_equal(chosen, -1);
}

/* Messages as text: role:content, with * behind the role if it is untrained. */
static const char *messages(const struct zf_layout *l, const char *record)
{
    struct source s;
    struct zf_fields f;
    struct zf_parts parts = {0};
    struct zf_message *list;
    size_t count, n = 0;
    make_source(&s, NULL, record);
    enum zf_status status = zf_fields_read(&f, ZF_DATA_JSONL, &s.record, s.text, "data.x", &parts, &e);
    if (status == ZF_OK) status = zf_messages_read(l, &f, &parts, &list, &count, &e);
    shown[0] = 0;
    for (size_t i = 0; status == ZF_OK && i < count; i++) {
        n += (size_t)snprintf(shown + n, sizeof shown - n, "%s%s%s:%.*s", i ? " " : "", list[i].role, list[i].untrained ? "*" : "",
                              (int)list[i].size, list[i].content);
        assert_true(n < sizeof shown);
    }
    if (status != ZF_OK) snprintf(shown, sizeof shown, "%d %s: %s", status, e.where, e.message);
    zf_parts_free(&parts);
    return shown;
}

static void test_messages(void **state)
{
    (void)state;
    struct zf_layout l = {.shape = ZF_SHAPE_CHAT, .columns = {"messages"}};
    assert_string_equal(
        messages(&l, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}"),
        "user:a assistant:b");
    assert_string_equal(messages(&l, "{\"system\": \"s\", \"messages\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
                                     "\"value\": \"b\", \"weight\": 0}, {\"from\": \"function\", \"value\": \"f\"}]}"),
                        "system:s user:a assistant*:b tool:f");
    assert_string_equal(messages(&l,
                                 "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"value\": \"hi\"}, {\"text\": "
                                 "\" there\"}, \"!\"], \"loss_weight\": 0.0}, {\"role\": \"assistant\", \"content\": [{\"type\": "
                                 "\"text\", \"text\": \"yes\"}], \"loss_weight\": 1.0}, {\"role\": \"assistant\", \"content\": \"c\", "
                                 "\"train\": false, \"tool_calls\": []}]}"),
                        "user:hi there! assistant:yes assistant*:c");
    assert_string_equal(messages(&l, "{\"messages\": []}"), "");
    assert_string_equal(messages(&l, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}"), "");
    assert_has(messages(&l, "{\"messages\": [{\"role\": \"user\"}]}"), "4 : `messages`[0] has no text");
    assert_has(messages(&l, "{\"messages\": [{\"content\": \"a\"}]}"), "`messages`[0] has no role");
    assert_has(messages(&l, "{\"messages\": [\"a\"]}"), "`messages`[0] is no object");
    assert_has(messages(&l, "{\"messages\": \"a\"}"), "its `messages` is no list");
    assert_has(messages(&l, "{\"m\": \"a\"}"), "its `messages` is missing");
    assert_has(messages(&l, "{\"messages\": [], \"tools\": [1]}"), "it has `tools`, which is not supported");
    assert_has(messages(&l, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [1]}]}"),
               "`messages`[0] has `tool_calls`, which is not supported");
    assert_has(messages(&l, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"x\"}]}]}"),
               "of type image_url is no text");
    assert_has(messages(&l, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}"), "neither 0 nor 1");
    assert_has(messages(&l, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1}]}"), "only turns of the assistant");
    struct zf_layout both = {.shape = ZF_SHAPE_CHAT, .columns = {"prompt", "completion"}};
    assert_string_equal(messages(&both, "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": "
                                        "\"b\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"c\"}]}"),
                        "user:a assistant*:b assistant:c");
}

static void test_turns(void **state)
{
    (void)state;
    struct zf_layout l = {.shape = ZF_SHAPE_TURNS, .columns = {"instruction", "output"}, .inputs = true};
    assert_string_equal(messages(&l, "{\"instruction\": \"do\", \"input\": \"\", \"output\": \"done\"}"), "user:do assistant:done");
    assert_string_equal(messages(&l, "{\"instruction\": \"do\", \"input\": \"it\", \"output\": \"\"}"), "user:do\n\nit assistant:");
    assert_string_equal(messages(&l, "{\"instruction\": \"do\", \"context\": 5, \"output\": 6, \"system\": \"s\"}"),
                        "system:s user:do\n\n5 assistant:6");
    assert_string_equal(messages(&l, "{\"instruction\": \"\", \"output\": \"\"}"), "");
    assert_string_equal(messages(&l, "{\"instruction\": null, \"output\": null}"), "");
    assert_has(messages(&l, "{\"instruction\": \"a\", \"output\": null}"), "4 : its `output` is null");
    assert_has(messages(&l, "{\"instruction\": \"a\"}"), "4 : its `output` is missing");
    assert_has(messages(&l, "{\"output\": \"a\"}"), "4 : it has no `instruction`");
    assert_has(messages(&l, "{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"x\", \"y\"]]}"), "it has `history`");
    struct zf_layout question = {.shape = ZF_SHAPE_TURNS, .columns = {"question", "answer"}};
    assert_string_equal(messages(&question, "{\"question\": \"q\", \"input\": \"not used\", \"answer\": \"a\"}"), "user:q assistant:a");
}

/* What is shown is text on one line, whatever is shown of it. */
static void test_shown_text(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    char text[200], name[60], record[200];
    for (size_t n = 110; n < 130; n++) {
        memset(text, 'a', n);
        snprintf(text + n, sizeof text - n, "\u00e4\u20ac\x1b\n%s", "and so on, with more");
        o.prompt = text;
        o.response = "{a}";
        one(&o, "{\"a\": 1}");
        assert_int_equal(zf_utf8_check(described, strlen(described)), strlen(described));
        assert_has(described, "...\"");
        assert_null(strpbrk(described, "\n\x1b"));
    }
    o.prompt = "a\n\x1b{a}";
    one(&o, "{\"a\": 1}");
    assert_has(described, "\"a\\n\\x1b{a}\"");
    o.prompt = NULL;
    for (size_t n = 30; n < 50; n++) {
        memset(name, 'a', n);
        snprintf(name + n, sizeof name - n, "\u20ac\u20ac");
        snprintf(record, sizeof record, "{\"a\": 1, \"%s\": 2}", name);
        one(&o, record);
        assert_int_equal(zf_utf8_check(described, strlen(described)), strlen(described));
        assert_has(described, "not used: `aaa");
        o.response = "{b}";
        one(&o, record);
        assert_int_equal(zf_utf8_check(shown, strlen(shown)), strlen(shown));
        o.response = "{a}";
    }
}

/* Through the templates for chats. */
static void test_chat(void **state)
{
    (void)state;
    struct zf_layout_options o = defaults();
    o.chat = ZF_CHAT_NONE;
    const char *turns = "{\"instruction\": \"do \", \"output\": \"done\", \"text\": \"unused\"}";
    assert_has(one(&o, turns), "c'do ");
    assert_has(shown, "Tc'done'");
    one(&o, "{\"instruction\": \"do\", \"input\": \"it\", \"output\": \"done\"}");
    assert_has(described, "user from `instruction` and `input`, assistant from `output`; ");
    one(&o, turns);
    assert_has(described, "user from `instruction`, assistant from `output`; ");
    assert_has(described, "not used: `text`");
    assert_has(one(&o, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}"),
               "Tc'b'");
    assert_has(described, "messages from `messages`; ");
    assert_has(one(&o, "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": \"assistant\", \"content\": "
                       "\"b\"}]}"),
               "Tc'b'");
    assert_has(described, "messages from `prompt` and `completion`; ");
    assert_has(one(&o, "{\"prompt\": \"a\", \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}"),
               "expected two lists or two texts");
    o.chat = ZF_CHAT_AUTO; /* there is no folder: plain */
    one(&o, "{\"question\": \"q\", \"answer\": \"a\"}");
    assert_has(shown, "Tc'a'");
    assert_has(described, "plain");
    static const struct zf_choice choices[] = {{"0", "bad"}, {"1", "good"}};
    o.choices = choices;
    o.choice_count = 2;
    assert_has(one(&o, "{\"question\": \"q\", \"answer\": 1}"), "good'");
    assert_int_equal(chosen, 1);
    assert_has(one(&o, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"), "2 choices: ");
}

/* A tokenizer that puts <s> in front of its texts. */
static void test_front(void **state)
{
    (void)state;
    save_text(
        "tokenizer.json",
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true, \"normalized\": false}], \"post_processor\": {\"type\": "
        "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [3], \"tokens\": [\"<s>\"]}}}, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": "
        "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []}}");
    struct zf_tokenizer *t;
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_OK);
    struct zf_layout_options o = defaults();
    const char *pair = "{\"prompt\": \"<s>a\", \"completion\": \"b\"}", *text = "{\"text\": \"a\"}";
    o.tokenizer = t;
    o.eos = -1;
    assert_string_equal(one(&o, pair), "F<3> c'<s>a' Tc'b'"); /* what content spells is text */
    assert_has(described, "<s> in front");
    assert_string_equal(one(&o, text), "Ts'a'");
    o.add_bos = ZF_SWITCH_YES;
    assert_string_equal(one(&o, text), "F<3> Ts'a'");
    assert_string_equal(one(&o, "{\"text\": \"<s>a\"}"), "Ts'<s>a'");
    o.prompt = "<s>{prompt}";
    o.response = "{completion}";
    assert_string_equal(one(&o, pair), "s'<s>' c'<s>a' Tc'b'");
    o.prompt = " {prompt}";
    assert_string_equal(one(&o, pair), "F<3> s' ' c'<s>a' Tc'b'");
    o.prompt = o.response = NULL;
    o.add_bos = ZF_SWITCH_NO;
    assert_string_equal(one(&o, pair), "c'<s>a' Tc'b'");
    o.add_bos = ZF_SWITCH_AUTO;
    o.chat = ZF_CHAT_PLAIN; /* no model's template: its texts are as other texts */
    one(&o, "{\"question\": \"a\", \"answer\": \"b\"}");
    assert_int_equal(strncmp(shown, "F<3> ", 5), 0);
    o.chat = ZF_CHAT_CHATML;
    one(&o, "{\"question\": \"a\", \"answer\": \"b\"}");
    assert_null(strstr(shown, "<3>"));
    o.tokenizer = bytes;
    o.add_bos = ZF_SWITCH_YES;
    assert_has(one(&o, pair), "2 add_bos: ");
    zf_tokenizer_close(t);
}

static void hash_of(const struct zf_layout_options *o, const char *record, unsigned char to[16])
{
    struct source s;
    struct zf_layout *l;
    make_source(&s, NULL, record);
    assert_int_equal(zf_layout_open(&l, o, &s.record, s.text, "data.x", &e), ZF_OK);
    memcpy(to, zf_layout_hash(l), 16);
    zf_layout_close(l);
}

static void test_hash(void **state)
{
    (void)state;
    static const struct zf_choice choices[2][1] = {{{"1", "a"}}, {{"1", "b"}}};
    const char *record = "{\"prompt\": 1, \"completion\": 1, \"response\": 1}";
    unsigned char h[9][16], again[16];
    struct zf_layout_options o = defaults();
    hash_of(&o, record, h[0]);
    hash_of(&o, "{\"completion\": 2, \"prompt\": 3}", again);
    assert_memory_equal(h[0], again, 16);
    hash_of(&o, "{\"prompt\": 1, \"response\": 1}", h[1]);
    o.train_all = true;
    hash_of(&o, record, h[2]);
    o = defaults();
    o.add_eos = false;
    hash_of(&o, record, h[3]);
    o = defaults();
    o.prompt = "{prompt}";
    o.response = "{completion} ";
    hash_of(&o, record, h[4]);
    o.prompt = "{prompt} ";
    o.response = "{completion}";
    hash_of(&o, record, h[5]);
    o.choice_count = 1;
    o.choices = choices[0];
    hash_of(&o, record, h[6]);
    o.choices = choices[1];
    hash_of(&o, record, h[7]);
    o = defaults();
    hash_of(&o, "{\"text\": 1}", h[8]);
    for (size_t i = 0; i < 9; i++)
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(h[i], h[k], 16);
}

/* The first records of real files are found to be what they are. */
static void test_real_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *described;
    } files[] = {{"data/datasets/instruct/v1_sft_demo.jsonl", "messages from `messages`; "},
                 {"data/datasets/gsm8k/test.jsonl", "user from `question`, assistant from `answer`; "}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = shared_path(files[i].path);
        if (!path) skip();
        FILE *f = fopen(path, "r");
        char *line = NULL;
        size_t room = 0, read = 0;
        assert_non_null(f);
        struct zf_layout_options o = defaults();
        for (ssize_t n; read < 50 && (n = getline(&line, &room, f)) > 0; read++) {
            if (line[n - 1] == '\n') line[n - 1] = 0;
            assert_has(one(&o, line), "T");
            assert_has(described, files[i].described);
        }
        assert_true(read == 50);
        free(line);
        fclose(f);
    }
}

static int begin(void **state)
{
    return set_up(state) || zf_tokenizer_open(&bytes, "bytes", &e) != ZF_OK;
}

static int end(void **state)
{
    zf_tokenizer_close(bytes);
    return tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_and_response),
        cmocka_unit_test(test_values_of_columns),
        cmocka_unit_test(test_nothing_missing_null),
        cmocka_unit_test(test_broken_records),
        cmocka_unit_test(test_unknown_columns),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_shown_text),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_front),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
