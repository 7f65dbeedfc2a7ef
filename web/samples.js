// Texts to begin with. None is a quotation from a store that quickstart builds: that would flatter the neighbours.

export const samples = [
  {name: 'A question about Perl', text: `How do I read a file line by line? Open the file first, and check that it could be opened. The angle operator then reads one line at a time, and the loop ends when there is nothing left to read. If you want all of the lines at once, use the same operator in list context. The newline at the end of each line is still there; the function chomp removes it. If the file is very large, reading it all into memory is not a good idea.

    open(my $log, "<", $file) or die "Cannot read $file: $!";
    while (my $line = <$log>) {
        chomp $line;
        $seen{$line}++;
    }
`},
  {name: 'An encyclopedia', text: `The lighthouse stands on a rock at the mouth of the river, two miles from the town. It was built between 1811 and 1814 after a storm in which three ships were lost, and its lamp was first lit in the autumn of that year. The tower is 34 metres high and has a spiral staircase of 162 steps. During the war the light was put out, and the building served as a post for the coast guard. It was restored in the 1970s, and since 1986 it has been a museum.
`},
  {name: 'A novel', text: `It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other of their daughters.
`},
  {name: 'Letters of all kinds', text: `Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Voix ambiguë d’un cœur qui au zéphyr préfère les jattes de kiwis. Съешь же ещё этих мягких французских булок. 色は匂へど散りぬるを。 It costs 12 € 😀, tabs\tand all.
`},
];
