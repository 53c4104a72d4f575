# Makes a class of the Java snippets that the index lists: a function for each, which takes the names that the snippet uses and returns
# the grant that it got.
BEGIN {
    FS = "\t"
    print "package programs;\n"
    print "import io.lettuce.core.LettuceFutures;\nimport io.lettuce.core.RedisClient;\nimport io.lettuce.core.api.StatefulRedisConnection;"
    print "import io.lettuce.core.api.async.BaseRedisAsyncCommands;\nimport io.lettuce.core.codec.StringCodec;\nimport io.lettuce.core.output.ObjectOutput;"
    print "import io.lettuce.core.protocol.CommandArgs;\nimport io.lettuce.core.protocol.ProtocolKeyword;"
    print "import java.time.Duration;\nimport java.util.List;\nimport java.util.Map;\nimport java.util.concurrent.TimeUnit;"
    print "import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;\nimport org.springframework.data.redis.core.RedisCallback;"
    print "import org.springframework.data.redis.core.StringRedisTemplate;\nimport org.springframework.data.redis.core.script.RedisScript;\n"
    print "@SuppressWarnings({\"rawtypes\", \"deprecation\"})\nfinal class Pages {"
    print "    interface Run {\n        Boolean of(StringRedisTemplate template, String job, String owner);\n    }\n"
    print "    record Page(String name, String text, Run run) {}\n"
    print "    static final List<Page> ALL = List.of("
}
{
    text = ""
    outcome = ""
    while ((getline line <$1) > 0) {
        text = text "            " line "\n"
        if (match(line, /^boolean [a-zA-Z]+/)) outcome = substr(line, 9, RLENGTH - 8)
    }
    close($1)
    shown = text
    gsub(/\\/, "\\\\", shown)
    print "        " separator "new Page(\"" $2 " " $3 "\", \"\"\"\n" shown "            \"\"\", (template, job, owner) -> {"
    printf "%s", text
    print "            return " (outcome == "" ? "null" : outcome) ";\n        })"
    separator = ", "
}
END { print "    );\n}" }
