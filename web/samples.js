// Texts to begin with.

export const samples = [
  {name: 'A question about Perl', text: `How do I read a file line by line? Open the file first, and check that it could be opened. The angle operator then reads one line at a time, and the loop ends when there is nothing left to read. If you want all of the lines at once, use the same operator in list context. The newline at the end of each line is still there; the function chomp removes it. If the file is very large, reading it all into memory is not a good idea.

    open(my $in, "<", "input.txt") or die "Can't open input.txt: $!";
    while (<$in>) {
        print "Just read in this line: $_";
    }
`},
  {name: 'An encyclopedia', text: `The red fox is the largest of the true foxes and one of the most widely distributed members of the order Carnivora, being present across the entire Northern Hemisphere including most of North America, Europe and Asia, plus parts of North Africa. Apart from its large size, the red fox is distinguished from other fox species by its ability to adapt quickly to new environments. Despite its name, the species often produces individuals with other colourings, including white and black.
`},
  {name: 'A novel', text: `It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so well fixed in the minds of the surrounding families, that he is considered as the rightful property of some one or other of their daughters.
`},
  {name: 'Letters of all kinds', text: `Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Voix ambiguë d’un cœur qui au zéphyr préfère les jattes de kiwis. Съешь же ещё этих мягких французских булок. 色は匂へど散りぬるを。 It costs 12 € 😀, tabs\tand all.
`},
];
