# Makes a program of the Go snippets that the index lists: a function for each, which takes the names that the snippet uses and returns
# the grant that it got. The block that opens the connection has a function of its own. Go refuses unused variables, so each is used.
BEGIN {
    FS = "\t"
    port = ENVIRON["PORT"]
    takes = "(ctx context.Context, rdb *redis.Client, job, owner, order string, token int64) (answer answer, err error)"
    print "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"strconv\"\n\t\"strings\"\n\t\"time\"\n\n\t\"github.com/redis/go-redis/v9\"\n)\n"
    print "var _, _, _, _ = fmt.Sprint, strconv.Itoa, strings.HasPrefix, time.Second\n"
    print "var pages = []page{"
}
{
    print "\t{\"" $2 " " $3 "\", func" takes " {"
    text = used = ""
    makes_connection = is_granted = has_reply = 0
    while ((getline line <$1) > 0) {
        gsub(/6379/, port, line)
        text = text line "\n"
        if (match(line, /^[a-z][a-z, ]* :=/)) {
            count = split(substr(line, 1, RLENGTH - 3), names, /, */)
            for (i = 1; i <= count; i++) {
                used = used "\t\t_ = " names[i] "\n"
                if (names[i] == "granted") is_granted = 1
                if (names[i] == "reply") has_reply = 1
                if (names[i] == "rdb") makes_connection = 1
            }
        }
    }
    close($1)
    # In a block of its own the snippet may redefine variables of the function.
    print "\t\t{"
    printf "%s", text
    printf "%s", used
    if (makes_connection) print "\t\tanswer.connection = rdb"
    if (has_reply) print "\t\tanswer.reply = reply"
    if (is_granted) print "\t\tanswer.refused = !granted"
    print (makes_connection ? "\t\treturn answer, nil" : "\t\treturn answer, err") "\n\t\t}"
    print "\t}, `" text "`},"
}
END { print "}" }
