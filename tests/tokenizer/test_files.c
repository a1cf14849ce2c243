/* The files of a tokenizer: what each component of a tokenizer.json becomes, what is refused and in which words, what the files beside it
 * add, vocab.json with merges.txt. Expected ids and texts are transformers' and tokenizers'. In the JSON here ' stands for ". */
#include "tests/tokenizer/support.h"

static const char *json(const char *text)
{
    static char copies[8][8192];
    static int next;
    char *to = copies[next++ % 8];
    snprintf(to, sizeof copies[0], "%s", text);
    for (char *c = to; *c; c++) {
        if (*c == '\'') *c = '"';
    }
    return to;
}

static void expect_refused(const char *text, const char *says)
{
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    enum zf_status s = zf_tokenizer_parse(&t, text, strlen(text), "tokenizer.json", &e);
    if (s != ZF_FORMAT || !strstr(e.message, says)) print_error("%s\n%s\n", text, e.message);
    assert_int_equal(s, ZF_FORMAT);
    assert_null(t);
    assert_non_null(strstr(e.message, says));
    assert_non_null(strstr(e.where, "tokenizer.json"));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } whole[] = {
        {"", "JSON"},
        {"[]", "no JSON object"},
        {"{'model':{'type':'Unigram','vocab':[]}}", "'Unigram'"},
        {"{'model':{'type':'WordPiece','vocab':{}}}", "'WordPiece'"},
        {"{'model':{'type':'WordLevel','vocab':{'a':0},'merges':[]}}", "'WordLevel'"},
        {"{'model':{'vocab':{'a':0}}}", "no BPE"},
        {"{'model':{'vocab':{},'merges':[]}}", "empty"},
        {"{'model':{'vocab':{'a':0},'merges':[],'dropout':0.1}}", "dropout"},
        {"{'model':{'vocab':{'a':0},'merges':[],'end_of_word_suffix':'</w>'}}", "end_of_word_suffix"},
        {"{'model':{'vocab':{'a':0},'merges':[],'fuse_unk':1}}", "fuse_unk"},
        {"{'model':{'vocab':{'a':0,'b':0},'merges':[]}}", "two tokens"},
        {"{'model':{'vocab':{'a':0,'a':1},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'a':0,'\\u0061':1},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'a':-1},'merges':[]}}", "no id"},
        {"{'model':{'vocab':{'a':2000000000},'merges':[]}}", "no id"},
        {"{'model':{'vocab':{'a':1.5},'merges':[]}}", "no id"},
        {"{'model':{'vocab':{'a':0},'merges':['a']}}", "no pair"},
        {"{'model':{'vocab':{'a':0},'merges':['a a a']}}", "no pair"},
        {"{'model':{'vocab':{'a':0},'merges':[' a']}}", "no pair"},
        {"{'model':{'vocab':{'a':0},'merges':[['a',1]]}}", "no pair"},
        {"{'model':{'vocab':{'a':0},'merges':[['a']]}}", "no pair"},
        {"{'model':{'vocab':{'a':0},'merges':['a a']}}", "'aa'"},
        {"{'model':{'vocab':{'a':0},'merges':['x a']}}", "'x'"},
        {"{'model':{'vocab':{'a':0},'merges':[]},'model':{'vocab':{'b':0},'merges':[]}}", "duplicate"},
        {"{'model':{'vocab':{'a':0},'merges':[],'vocab':{'b':0}}}", "duplicate"},
        {"{'model':{'vocab':{'a':0},'merges':[]}", "JSON"},
        {"{'model':{'vocab':{'a':0,},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'a':0},'merges':['a a',]}}", "JSON"},
        {"{'model':{'vocab':{'a\\x':0},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'\xff':0},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'a':00},'merges':[]}}", "JSON"},
        {"{'model':{'vocab':{'a':0},'merges':[]}} x", "JSON"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git-LFS"},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) expect_refused(json(whole[i].json), whole[i].says);
#define STEP(section, type) "'" section "':{'type':" type "}"
    static const struct {
        const char *json, *says;
    } parts[] = {
        {STEP("normalizer", "'Precompiled'"), "normalizer 'Precompiled'"},
        {STEP("normalizer", "'Precompiled'"), "Prepend, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, and Sequence"},
        {STEP("normalizer", "'Sequence','normalizers':[{'type':'BertNormalizer'}]"), "normalizer 'BertNormalizer'"},
        {STEP("normalizer", "'Sequence'"), "'normalizers'"},
        {STEP("normalizer", "1"), "'type'"},
        {STEP("normalizer", "'Prepend'"), "'prepend'"},
        {STEP("normalizer", "'Replace','pattern':{'String':''},'content':''"), "empty"},
        {STEP("normalizer", "'Replace','pattern':{'String':'a'}"), "'content'"},
        {STEP("normalizer", "'Replace','pattern':{'Regex':'('},'content':''"), "'('"},
        {STEP("pre_tokenizer", "'UnicodeScripts'"), "pre_tokenizer 'UnicodeScripts'"},
        {STEP("pre_tokenizer", "'Split','pattern':{'Regex':'[a'},'behavior':'Isolated'"), "[a"},
        {STEP("pre_tokenizer", "'Split','pattern':{'String':'a'},'behavior':'isolated'"), "MergedWithNext"},
        {STEP("pre_tokenizer", "'Metaspace'"), "'replacement'"},
        {STEP("pre_tokenizer", "'Metaspace','replacement':'ab'"), "single character"},
        {STEP("pre_tokenizer", "'Metaspace','replacement':'_','prepend_scheme':'last'"), "always, first, never"},
        {STEP("pre_tokenizer", "'Metaspace','replacement':'_','prepend_scheme':'first','add_prefix_space':false"), "contradict"},
        {STEP("pre_tokenizer", "'Sequence','pretokenizers':[{'type':'ByteLevel'},{'type':'ByteLevel'}]"), "once"},
        {STEP("pre_tokenizer", "'Sequence','pretokenizers':[{'type':'ByteLevel'},{'type':'Metaspace','replacement':'_'}]"),
         "behind ByteLevel"},
        {STEP("post_processor", "'Other'"), "post_processor 'Other'"},
        {STEP("post_processor", "'BertProcessing'"), "'cls'"},
        {STEP("post_processor", "'BertProcessing','cls':['a',0],'sep':['b',9]"), "id 9"},
        {STEP("post_processor", "'TemplateProcessing','single':[]"), "no sequence A"},
        {STEP("post_processor", "'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}}]"), "'x'"},
        {STEP("post_processor", "'TemplateProcessing','single':[{'SpecialToken':{'id':'x'}},{'Sequence':{'id':'A'}}],"
                                "'special_tokens':{'x':{'ids':[7]}}"),
         "id 7"},
        {STEP("post_processor", "'Sequence','processors':[{'type':'BertProcessing','cls':['a',0],'sep':['a',0]},"
                                "{'type':'TemplateProcessing','single':[]}]"),
         "behind another"},
        {STEP("decoder", "'WordPiece'"), "decoder 'WordPiece'"},
        {STEP("decoder", "'Strip','content':' ','start':-1,'stop':0"), "'start'"},
        {"'added_tokens':[{'id':1,'content':'a'}]", "must agree"},
        {"'added_tokens':[{'id':0,'content':'b'}]", "id 0, where transformers gives it 1"},
        {"'added_tokens':[{'id':2,'content':'b'}]", "id 2, where transformers gives it 1"},
        {"'added_tokens':[{'id':1}]", "no content"},
        {"'added_tokens':[{'content':'b'}]", "no id"},
        {"'added_tokens':[{'id':1,'content':'b','special':'yes'}]", "special"},
        {"'added_tokens':{}", "no list"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s,'model':{'vocab':{'a':0},'merges':[]}}", parts[i].json);
        expect_refused(json(text), parts[i].says);
    }
}

/* Sequences in Sequences, as deep as anybody likes. */
static void test_nesting(void **state)
{
    (void)state;
    static char text[65536];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":");
    for (int i = 0; i < 1000; i++) n += (size_t)snprintf(text + n, sizeof text - n, "{\"type\":\"Sequence\",\"normalizers\":[");
    n += (size_t)snprintf(text + n, sizeof text - n, "{\"type\":\"NFC\"}");
    for (int i = 0; i < 1000; i++) n += (size_t)snprintf(text + n, sizeof text - n, "]}");
    snprintf(text + n, sizeof text - n, "}");
    expect_refused(text, "deep");
}

/* The steps that the components become. */
static void test_steps(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(
        json("{'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},{'type':'NFD'},{'type':'NFKC'},{'type':'NFKD'},{'type':'"
             "Lowercase'},"
             "{'type':'StripAccents'},{'type':'Strip','strip_left':true,'strip_right':false},{'type':'Prepend','prepend':'_'},"
             "{'type':'Sequence','normalizers':[{'type':'Replace','pattern':{'Regex':'b+'},'content':'c'}]}]},"
             "'pre_tokenizer':{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':'x'},'behavior':'MergedWithNext','"
             "invert':true},"
             "{'type':'Split','pattern':{'String':'.'},'behavior':'Contiguous','invert':false},{'type':'Digits','individual_digits':true},"
             "{'type':'Punctuation','behavior':'Removed'},{'type':'Punctuation'},{'type':'WhitespaceSplit'},"
             "{'type':'Metaspace','replacement':'_','add_prefix_space':false},"
             "{'type':'Metaspace','replacement':'_','prepend_scheme':'first','split':false},{'type':'Metaspace','replacement':'_'},"
             "{'type':'ByteLevel','add_prefix_space':false}]},"
             "'decoder':{'type':'Metaspace','replacement':'_','prepend_scheme':'never'},"
             "'model':{'vocab':{'a':0},'merges':[],'dropout':0.0,'type':'BPE'}}"));
    static const enum zf_step_kind normal[] = {ZF_STEP_NFC,         ZF_STEP_NFD,       ZF_STEP_NFKC,
                                               ZF_STEP_NFKD,        ZF_STEP_LOWERCASE, ZF_STEP_STRIP_ACCENTS,
                                               ZF_STEP_STRIP_SPACE, ZF_STEP_PREPEND,   ZF_STEP_REPLACE};
    static const enum zf_step_kind pre[] = {
        ZF_STEP_SPLIT,     ZF_STEP_SPLIT,     ZF_STEP_DIGITS,    ZF_STEP_PUNCTUATION, ZF_STEP_PUNCTUATION, ZF_STEP_WHITESPACE_SPLIT,
        ZF_STEP_METASPACE, ZF_STEP_METASPACE, ZF_STEP_METASPACE, ZF_STEP_BYTE_LEVEL};
    assert_int_equal(t->normalizer.count, sizeof normal / sizeof *normal);
    for (size_t i = 0; i < t->normalizer.count; i++) assert_int_equal(t->normalizer.list[i].kind, normal[i]);
    assert_int_equal(t->pre_tokenizer.count, sizeof pre / sizeof *pre);
    for (size_t i = 0; i < t->pre_tokenizer.count; i++) assert_int_equal(t->pre_tokenizer.list[i].kind, pre[i]);
    const struct zf_step *n = t->normalizer.list, *p = t->pre_tokenizer.list;
    assert_true(n[6].left && !n[6].right && n[8].has_regex);
    assert_string_equal(n[8].content.text, "c");
    assert_true(p[0].has_regex && p[0].invert && p[0].behavior == ZF_MERGED_WITH_NEXT);
    assert_true(!p[1].has_regex && !p[1].invert && p[1].behavior == ZF_CONTIGUOUS);
    assert_true(p[2].individual && p[3].behavior == ZF_REMOVED && p[4].behavior == ZF_ISOLATED);
    assert_true(p[6].prepend == ZF_PREPEND_NEVER && p[6].split);
    assert_true(p[7].prepend == ZF_PREPEND_FIRST && !p[7].split);
    assert_true(p[8].prepend == ZF_PREPEND_ALWAYS && p[8].split);
    assert_true(p[9].use_regex && !p[9].prefix_space && t->byte_level);
    assert_true(t->decoder.count == 1 && t->decoder.list[0].prepend == ZF_PREPEND_NEVER);
    zf_tokenizer_close(t);
}

/* The vocabulary is read straight from the text or by the JSON library: with the same result. */
static void test_spellings(void **state)
{
    (void)state;
    static const char *const files[] = {
        "{'model':{'vocab':{'a':0,'\u00e9':1,'\"':2,'\U0001F600':3,'a\u00e9':4,' ':5,'\u00e9\u00e9':6},'merges':['a \u00e9','\u00e9 "
        "\u00e9']}}",
        "{ 'x' : [ { } , 'y{' ] , 'model' : { 'merges' : [ ['a' , '\\u00E9'] , '\\u00e9 \\u00e9' ] ,\n\t'vocab' : { 'a' : 0 , '\\u00e9' : "
        "1 , "
        "'\\\"' : 2 , '\\ud83d\\ude00' : 3 , '\\u0061\u00e9' : 4 , ' ' : 5 , '\u00e9\u00e9' : 6 } } }\n",
        "{'mode\\u006c':{'voca\\u0062':{'a':0,'\u00e9':1,'\"':2,'\U0001F600':3,'a\u00e9':4,' ':5,'\u00e9\u00e9':6},"
        "'merges':[['a','\u00e9'],'\u00e9 \u00e9']}}",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char text[1024];
        /* The quotation mark that is a token. */
        snprintf(text, sizeof text, "%s", json(files[i]));
        char *quote = strstr(text, "\"\"\":2");
        if (quote) {
            memmove(quote + 2, quote + 1, strlen(quote + 1) + 1);
            quote[1] = '\\';
        }
        struct zf_tokenizer *t = parse(text);
        assert_int_equal(zf_tokenizer_size(t), 7);
        expect(t, "a\u00e9\"\U0001F600 \u00e9\u00e9\u00e9", "4 2 3 5 6 1");
        zf_tokenizer_close(t);
    }
}

/* What the decoders make of pieces, as the reference. */
static void test_decoders(void **state)
{
    (void)state;
#define META "{'type':'Metaspace','replacement':'\u2581'"
    static const struct {
        const char *decoder, *ids, *text;
    } cases[] = {
        {META "}", "0 1 2 0 3", " aa  b b"},
        {META "}", "2 1", "ab a"},
        {META ",'prepend_scheme':'never'}", "0 1 2", "  aa  b"},
        {META ",'add_prefix_space':true,'prepend_scheme':'first','split':false}", "1 1", "a a"},
        {"{'type':'Sequence','decoders':[{'type':'ByteFallback'}]}", "4 5 6 3 4 5 3 4", "\u20acb\uFFFD\uFFFDb\uFFFD"},
        {"{'type':'Sequence','decoders':[{'type':'ByteFallback'}," META "}]}", "4 5 6 1", "\u20ac a"},
        {"{'type':'Sequence','decoders':[{'type':'Fuse'},{'type':'Strip','content':' ','start':1,'stop':0}]}", "7 7 3", " b"},
        {"{'type':'Strip','content':'a','start':0,'stop':0}", "8", "aXb"},
        {"{'type':'Replace','pattern':{'Regex':'[A-Z]'},'content':'-'}", "8 3", "a-bb"},
        {"{'type':'Replace','pattern':{'String':'b'},'content':'\u2581'}", "8 3", "aX\u2581\u2581"},
        {"{'type':'Sequence','decoders':[]}", "8 3", "aXbb"},
        {"null", "8 3", "aXb b"},
        {"{'type':'ByteLevel'}", "9 3 10 9", " b\uFFFD "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{'decoder':%s,'model':{'vocab':{'\u2581':0,'\u2581a':1,'a\u2581\u2581b':2,'b':3,'<0xE2>':4,'<0x82>':5,'<0xAC>':6,' "
                 "':7,'aXb':8,"
                 "'\u0120':9,'\u00c3':10},'merges':[]}}",
                 cases[i].decoder);
        struct zf_tokenizer *t = parse(json(text));
        expect_text(t, cases[i].ids, false, cases[i].text);
        zf_tokenizer_close(t);
    }
}

/* Files in the test's folder; NULL: none of that name. */
struct beside {
    const char *tokenizer_config, *special_tokens_map, *added_tokens, *generation_config, *config;
};

static void save_beside(const struct beside *b)
{
    const char *const files[][2] = {{"tokenizer_config.json", b->tokenizer_config},
                                    {"special_tokens_map.json", b->special_tokens_map},
                                    {"added_tokens.json", b->added_tokens},
                                    {"generation_config.json", b->generation_config},
                                    {"config.json", b->config}};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        if (files[f][1])
            save_text(files[f][0], json(files[f][1]));
        else
            remove(in_folder(files[f][0]));
    }
}

static void expect_specials(const struct zf_tokenizer *t, const char *specials)
{
    int32_t found[16];
    size_t n = 0;
    for (int32_t id = -1; id <= (int32_t)zf_tokenizer_size(t); id++) {
        if (zf_tokenizer_is_special(t, id)) found[n++] = id;
    }
    assert_numbers(found, n, specials);
}

/* A tokenizer.json with an added token <x> (4) behind the vocabulary a b c <s>, and what AutoTokenizer makes of it with other files. */
static void test_beside(void **state)
{
    (void)state;
#define BASE(post) \
    "{'added_tokens':[{'id':4,'content':'<x>','special':false,'normalized':false}],'post_processor':" post \
    ",'model':{'type':'BPE','vocab':{'a':0,'b':1,'c':2,'<s>':3},'merges':[]}}"
#define TEMPLATE \
    "{'type':'TemplateProcessing','single':[{'SpecialToken':{'id':'<s>','type_id':0}},{'Sequence':{'id':'A','type_id':0}}]," \
    "'special_tokens':{'<s>':{'id':'<s>','ids':[3],'tokens':['<s>']}}}"
#define FLAGS(special) "'single_word':false,'lstrip':false,'rstrip':false,'normalized':false,'special':" special "}"
    static const char plain[] = BASE("null"), template[] = BASE(TEMPLATE);
    static const struct {
        const char *file;
        struct beside b;
        const char *specials;
        int32_t bos, eos, size;
        const char *ids;
    } cases[] = {
        {plain, {NULL}, "", -1, -1, 5, "0 4 1 0"},
        {plain, {"{'bos_token':'<s>','pad_token':'<pad>','eos_token':'<e>'}"}, "3 5 6", 3, 5, 7, "0 4 3 1 6 5"},
        /* With a tokenizer.json it is not asked. */
        {plain, {"{'bos_token':'<s>','add_bos_token':true}"}, "3", 3, -1, 5, "0 4 3 1 0"},
        {template, {"{'bos_token':'<s>','add_bos_token':false}"}, "3", 3, -1, 5, "3 0 4 3 1 0"},
        {template, {"{'bos_token':'<s>','eos_token':'<e>','add_eos_token':true}"}, "3 5", 3, 5, 6, "3 0 4 3 1 0 5"},
        /* Known by content, new flags; ids count on in the order of those given. */
        {plain,
         {"{'added_tokens_decoder':{'10':{'content':'<y>'," FLAGS("true") ",'9':{'content':'<pad>'," FLAGS("true") "}}"},
         "5 6",
         -1,
         -1,
         7,
         "0 4 6 1 5"},
        {plain, {"{'added_tokens_decoder':{'4':{'content':'<x>'," FLAGS("true") "}}"}, "4", -1, -1, 5, "0 4 1 0"},
        {plain, {"{'eos_token':'<x>'}"}, "4", -1, 4, 5, "0 4 1 0"},
        {plain, {"{'eos_token':'a'}"}, "0", -1, 0, 5, "0 4 1 0"},
        {plain, {"{'additional_special_tokens':['<y>','<x>']}"}, "5", -1, -1, 6, "0 4 5 1 0"},
        {plain, {"{'image_token':'<e>','extra_special_tokens':{'q':'<y>'},'pad_token':'<pad>'}"}, "5 6 7", -1, -1, 8, "0 4 7 1 5 6"},
        /* The older files, unless there is an added_tokens_decoder. */
        {plain,
         {"{'bos_token':'<q>'}", "{'bos_token':'<s>','pad_token':{'content':'<pad>','lstrip':true},'additional_special_tokens':['<y>']}"},
         "3 5 6",
         3,
         -1,
         7,
         "0 4 3 6 1 5"},
        {plain, {"{'bos_token':'<q>','added_tokens_decoder':{}}", "{'bos_token':'<s>'}"}, "5", 5, -1, 6, "0 4 1 0"},
        {plain, {"{'eos_token':'<e>'}", NULL, "{'<y>':9,'<e>':7}"}, "5", -1, 5, 7, "0 4 6 1 0 5"},
        {plain, {"{'eos_token':'<e>','added_tokens_decoder':{}}", NULL, "{'<y>':9,'<e>':7}"}, "5", -1, 5, 6, "0 4 1 0 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save_text("tokenizer.json", json(cases[i].file));
        save_beside(&cases[i].b);
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_size(t), cases[i].size);
        assert_int_equal(zf_tokenizer_bos(t), cases[i].bos);
        assert_int_equal(zf_tokenizer_eos(t), cases[i].eos);
        expect_specials(t, cases[i].specials);
        expect_bytes(t, "a<x> <s> <y>b<pad><e>", 21, true, true, cases[i].ids);
        const struct zf_ids *front = zf_tokenizer_front(t);
        assert_numbers(front->ids, front->count, cases[i].file == template ? "3" : "");
        assert_int_equal(zf_tokenizer_added(t, "<x>", 3), 4);
        assert_int_equal(zf_tokenizer_added(t, "b", 1), -1);
        zf_tokenizer_close(t);
    }
    save_beside(&(struct beside){"{'added_tokens_decoder':{'5':{'content':''}}}"});
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "added_tokens_decoder has no content"));
    save_beside(&(struct beside){"{'eos_token':"});
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.where, "tokenizer_config.json"));
    save_beside(&(struct beside){NULL});
    remove(in_folder("tokenizer.json"));
}

/* CLS and SEP of BERT and RoBERTa. */
static void test_cls_sep(void **state)
{
    (void)state;
    struct zf_tokenizer *t =
        parse(json("{'post_processor':{'type':'Sequence','processors':[{'type':'ByteLevel'},{'type':'RobertaProcessing','sep':['b',1],"
                   "'cls':['c',2]}]},'model':{'vocab':{'a':0,'b':1,'c':2},'merges':[]}}"));
    expect_bytes(t, "a", 1, true, true, "2 0 1");
    expect_bytes(t, "a", 1, true, false, "0");
    assert_numbers(zf_tokenizer_front(t)->ids, zf_tokenizer_front(t)->count, "2");
    zf_tokenizer_close(t);
}

/* vocab.json and merges.txt, as AutoTokenizer reads them. */
static void test_gpt2_files(void **state)
{
    (void)state;
    static const char vocab[] = "{'a':0,'b':1,'\u0120':2,'c':3,'</s>':4,'\u0120b':5}", merges[] = "#version: 0.2\r\n\u0120 b\r\n\n";
    static const char text[] = "a b</s><|endoftext|>zc <z><w>a";
#define SLASH "'bos_token':'</s>','eos_token':'</s>','unk_token':'</s>'"
    static const struct {
        struct beside b;
        int32_t bos, eos, size;
        const char *front, *ids, *decoded;
    } cases[] = {
        {{.config = "{'model_type':'gpt2'}"}, 6, 6, 7, "", "0 5 6 3 2 0", "a b<|endoftext|>c a"},
        {{.tokenizer_config = "{'tokenizer_class':'GPT2Tokenizer'," SLASH ",'pad_token':'<pad>','add_bos_token':true}"},
         4,
         4,
         7,
         "4",
         "4 0 5 4 3 2 0",
         "</s>a b</s>c a"},
        {{.tokenizer_config = "{'tokenizer_class':'GPT2TokenizerFast'," SLASH ",'add_eos_token':true,'add_prefix_space':true}"},
         4,
         4,
         6,
         "",
         "2 0 5 4 2 3 2 0 4",
         " a b</s> c a</s>"},
        {{.tokenizer_config = "{'add_bos_token':true}",
          .special_tokens_map = "{'bos_token':{'content':'</s>','normalized':true},'eos_token':'</s>','unk_token':'</s>'}",
          .config = "{'model_type':'opt'}"},
         4,
         4,
         6,
         "4",
         "4 0 5 4 3 2 0",
         "</s>a b</s>c a"},
        {{.tokenizer_config =
              "{'tokenizer_class':'GPT2Tokenizer','bos_token':null,'eos_token':'</s>','unk_token':null,'add_bos_token':true}",
          .added_tokens = "{'<w>':7,'<z>':6}"},
         -1,
         4,
         8,
         "",
         "0 5 4 3 2 6 7 0",
         "a b</s>c <z><w>a"},
    };
    save_text("vocab.json", json(vocab));
    save_text("merges.txt", merges);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        save_beside(&cases[i].b);
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_bos(t), cases[i].bos);
        assert_int_equal(zf_tokenizer_eos(t), cases[i].eos);
        assert_int_equal(zf_tokenizer_size(t), cases[i].size);
        assert_numbers(zf_tokenizer_front(t)->ids, zf_tokenizer_front(t)->count, cases[i].front);
        const char *ids = cases[i].ids;
        if (cases[i].eos == 6) { /* here </s> is no added token */
            expect_bytes(t, "a b<|endoftext|>zc <z><w>a", 26, true, true, ids);
        } else {
            expect_bytes(t, text, sizeof text - 1, true, true, ids);
        }
        expect_text(t, ids, false, cases[i].decoded);
        zf_tokenizer_close(t);
    }
    /* Other families cut text into other words; nothing says which this is. */
    static const struct beside others[] = {{.tokenizer_config = "{'tokenizer_class':'Qwen2Tokenizer'}", .config = "{'model_type':'gpt2'}"},
                                           {.config = "{'model_type':'qwen2'}"},
                                           {NULL}};
    struct zf_err e = {0};
    struct zf_tokenizer *t;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        save_beside(&others[i]);
        assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
        assert_null(t);
        assert_non_null(strstr(e.message, "only for GPT-2 and OPT"));
    }
    save_beside(&(struct beside){.config = "{'model_type':'opt'}"});
    save_text("merges.txt", "#version: 0.2\n\u0120 b\na\n");
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.where, "merges.txt:3"));
    save_text("merges.txt", "\u0120 b\na c\n");
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "'ac'"));
    save_text("vocab.json", "[]");
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.where, "vocab.json"));
    remove(in_folder("vocab.json"));
    assert_int_equal(zf_tokenizer_open(&t, folder, &e), ZF_FORMAT);
    assert_non_null(strstr(e.message, "save_pretrained"));
    save_beside(&(struct beside){NULL});
    remove(in_folder("merges.txt"));
}

/* The hash tells tokenizers apart, and only them. */
static void test_hash(void **state)
{
    (void)state;
    static const char file[] = "{'model':{'vocab':{'a':0,'<s>':1},'merges':[]}}";
    static const struct beside besides[] = {{NULL},
                                            {.tokenizer_config = "{'bos_token':'<s>'}"},
                                            {.config = "{'eos_token_id':1}"},
                                            {.config = "{'bos_token_id':1}"},
                                            {.tokenizer_config = "{'pad_token':'<pad>'}"},
                                            {.tokenizer_config = "{'pad_token':'<p>'}"}};
    enum { N = sizeof besides / sizeof *besides };
    unsigned char hashes[N + 2][16];
    for (size_t i = 0; i < N; i++) {
        save_text("tokenizer.json", json(file));
        save_beside(&besides[i]);
        for (int again = 0; again < 2; again++) {
            struct zf_tokenizer *t = open_tokenizer(folder);
            if (again) assert_memory_equal(hashes[i], zf_tokenizer_hash(t), 16);
            memcpy(hashes[i], zf_tokenizer_hash(t), 16);
            zf_tokenizer_close(t);
        }
    }
    /* What decides on no ids does not count. */
    save_beside(&(struct beside){.tokenizer_config = "{'chat_template':'x'}", .generation_config = "{'temperature':1}"});
    struct zf_tokenizer *t = open_tokenizer(folder);
    assert_memory_equal(hashes[0], zf_tokenizer_hash(t), 16);
    zf_tokenizer_close(t);
    save_beside(&(struct beside){NULL});
    save_text("tokenizer.json", json("{'model':{'vocab':{'b':0,'<s>':1},'merges':[]}}"));
    t = open_tokenizer(folder);
    memcpy(hashes[N], zf_tokenizer_hash(t), 16);
    zf_tokenizer_close(t);
    t = open_tokenizer("bytes");
    memcpy(hashes[N + 1], zf_tokenizer_hash(t), 16);
    zf_tokenizer_close(t);
    for (size_t i = 0; i < N + 2; i++) {
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(hashes[i], hashes[k], 16);
    }
    remove(in_folder("tokenizer.json"));
}

/* The end token: by name before by number; what cannot be resolved falls to the next file. */
static void test_eos(void **state)
{
    (void)state;
    save_text("tokenizer.json", SPM("", SPM_MERGES));
    static const struct {
        const char *tokenizer_config, *generation_config, *config;
        int32_t eos;
    } cases[] = {
        {"{\"eos_token\":\"</s>\"}", NULL, "{\"eos_token_id\":1}", 2},
        {"{\"eos_token\":{\"content\":\"<s>\",\"lstrip\":false}}", NULL, NULL, 1},
        {"{\"eos_token\":null}", "{\"eos_token_id\":[7,8]}", "{\"eos_token_id\":1}", 7},
        {"{}", NULL, "{\"eos_token_id\":1}", 1},
        {"{\"eos_token\":\"<new>\"}", "{\"eos_token_id\":7}", "{}", 14}, /* transformers adds it */
        {"{}", "{\"eos_token_id\":99}", "{}", -1},
        {NULL, NULL, NULL, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const files[][2] = {{"tokenizer_config.json", cases[i].tokenizer_config},
                                        {"generation_config.json", cases[i].generation_config},
                                        {"config.json", cases[i].config}};
        for (size_t f = 0; f < 3; f++) {
            if (files[f][1])
                save_text(files[f][0], files[f][1]);
            else
                remove(in_folder(files[f][0]));
        }
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_eos(t), cases[i].eos);
        zf_tokenizer_close(t);
    }
}

static void test_note(void **state)
{
    (void)state;
    struct zf_tokenizer *t = parse(
        "{\"truncation\":{\"max_length\":7},\"padding\":{\"strategy\":\"BatchLongest\"},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    assert_string_equal(zf_tokenizer_note(t),
                        "tokenizer.json asks for truncation at 7 tokens and padding; ignored: nothing is cut or padded");
    expect(t, "aaaaaaaaaa", "0 0 0 0 0 0 0 0 0 0");
    expect_text(t, "0 0", false, "a a"); /* without a decoder */
    zf_tokenizer_close(t);
}

/* Replacements that would fill the memory are stopped. */
static void test_replace_bomb(void **state)
{
    (void)state;
    static const char step[] = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaa\"}";
    char json[8192] = "", list[4096] = "";
    for (int i = 0; i < 30; i++) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? "," : "", step);
    for (int where = 0; where < 2; where++) {
        struct zf_err e = {0};
        struct zf_ids a = {0};
        char *text = NULL;
        snprintf(json, sizeof json, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[%s]},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
                 where ? "decoder" : "normalizer", where ? "decoders" : "normalizers", list);
        struct zf_tokenizer *t = parse(json);
        enum zf_status s =
            where ? zf_tokenizer_decode(t, (int32_t[]){0}, 1, false, &text, NULL, &e) : zf_tokenizer_encode(t, "a", 1, true, true, &a, &e);
        assert_int_equal(s, ZF_FORMAT);
        assert_non_null(strstr(e.message, "Replace"));
        free(a.ids);
        free(text);
        zf_tokenizer_close(t);
    }
}

/* What is written for transformers reads back as the same tokenizer. */
static void test_write_bytes(void **state)
{
    (void)state;
    struct zf_err e = {0};
    struct zf_tokenizer *bytes = open_tokenizer("bytes");
    for (int with_eos = 0; with_eos < 2; with_eos++) {
        assert_int_equal(zf_tokenizer_write_bytes(folder, with_eos, &e), ZF_OK);
        struct zf_tokenizer *t = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_size(t), 256 + with_eos);
        assert_int_equal(zf_tokenizer_eos(t), with_eos ? 256 : -1);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            struct zf_ids a = {0}, b = {0};
            assert_int_equal(zf_tokenizer_encode(bytes, texts[i], strlen(texts[i]), with_eos, false, &a, &e), ZF_OK);
            assert_int_equal(zf_tokenizer_encode(t, texts[i], strlen(texts[i]), true, true, &b, &e), ZF_OK);
            assert_int_equal(a.count, b.count);
            if (a.count) assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
            free(a.ids);
            free(b.ids);
        }
        expect_text(t, "226 130", false, "\uFFFD"); /* one for a part of a character */
        expect_text(t, "226 65 255 128", false, "\uFFFDA\uFFFD\uFFFD");
        zf_tokenizer_close(t);
    }
    zf_tokenizer_close(bytes);
}

static void test_truncation_ignored(void **state)
{
    (void)state;
    struct zf_err e = {0};
    const char *path = shared_path("data/tokenizers/gpt2-with-truncation");
    if (!path) skip();
    struct zf_tokenizer *t = open_tokenizer(path);
    assert_non_null(strstr(zf_tokenizer_note(t), "truncation at 50 tokens"));
    char text[2001];
    for (size_t i = 0; i < 2000; i++) text[i] = i % 2 ? ' ' : 'x';
    struct zf_ids a = {0};
    assert_int_equal(zf_tokenizer_encode(t, text, 2000, true, true, &a, &e), ZF_OK);
    assert_true(a.count > 900);
    free(a.ids);
    zf_tokenizer_close(t);
}

/* The folders of GPT-2 and OPT as they were before tokenizer.json. */
static void test_real_gpt2_files(void **state)
{
    (void)state;
    static const char *const names[][3] = {{"gpt2-openai", "encoder.json", "vocab.bpe"},
                                           {"gpt2-with-truncation", "vocab.json", "merges.txt"},
                                           {"opt", "gpt2-vocab.json", "gpt2-merges.txt"}};
    size_t tried = 0;
    remove(in_folder("tokenizer.json"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        struct zf_err e = {0};
        snprintf(path, sizeof path, "data/tokenizers/%s", names[i][0]);
        const char *real = shared_path(path);
        if (!real) continue;
        struct zf_tokenizer *t = open_tokenizer(real);
        char from[2][1200];
        for (int k = 0; k < 2; k++) {
            snprintf(from[k], sizeof from[k], "%s/%s", real, names[i][k + 1]);
            const char *to = !strncmp(names[i][k + 1], "gpt2-", 5) ? names[i][k + 1] + 5 : names[i][k + 1];
            assert_int_equal(zf_file_copy(from[k], in_folder(to), &e), ZF_OK);
        }
        save_beside(
            &(struct beside){.tokenizer_config = i == 2 ? "{'bos_token':'</s>','eos_token':'</s>','unk_token':'</s>','pad_token':'<pad>',"
                                                          "'add_bos_token':true,'tokenizer_class':'GPT2Tokenizer'}"
                                                        : NULL,
                             .config = "{'model_type':'gpt2'}"});
        struct zf_tokenizer *old = open_tokenizer(folder);
        assert_int_equal(zf_tokenizer_size(old), zf_tokenizer_size(t));
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            struct zf_ids a = {0}, b = {0};
            assert_int_equal(zf_tokenizer_encode(t, texts[k], strlen(texts[k]), true, true, &a, &e), ZF_OK);
            assert_int_equal(zf_tokenizer_encode(old, texts[k], strlen(texts[k]), true, true, &b, &e), ZF_OK);
            assert_int_equal(a.count, b.count);
            if (a.count) assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
            free(a.ids);
            free(b.ids);
        }
        zf_tokenizer_close(old);
        zf_tokenizer_close(t);
        const char *const left[] = {"encoder.json", "vocab.bpe", "vocab.json", "merges.txt", "tokenizer_config.json", "config.json"};
        for (size_t k = 0; k < sizeof left / sizeof *left; k++) remove(in_folder(left[k]));
        tried++;
    }
    if (!tried) skip();
}

/* A vocabulary of 128k tokens and more. */
static void test_loading_time(void **state)
{
    (void)state;
    static const char *const names[] = {"data/tokenizers/llama3", "data/tokenizers/qwen3"};
    size_t tried = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *path = shared_path(names[i]);
        if (!path) continue;
        clock_t start = clock(); /* of this process: the machine may be busy */
        struct zf_tokenizer *t = open_tokenizer(path);
        print_message("%s: loaded in %.3f s\n", names[i], (double)(clock() - start) / CLOCKS_PER_SEC);
        assert_true(zf_tokenizer_size(t) > 128000);
        zf_tokenizer_close(t);
        tried++;
    }
    if (!tried) skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_decoders),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_cls_sep),
        cmocka_unit_test(test_gpt2_files),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_note),
        cmocka_unit_test(test_replace_bomb),
        cmocka_unit_test(test_write_bytes),
        cmocka_unit_test(test_truncation_ignored),
        cmocka_unit_test(test_real_gpt2_files),
        cmocka_unit_test(test_loading_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
